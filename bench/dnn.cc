// dnn.cc: times oneDNN's own primitives, each alone and with every operand in the format that it likes best, so that no
// reorder is part of it: what a step that is made of them could not be faster than. Started by bench/ops, whose ops.c prints
// such lines; reads them from stdin and prints milliseconds and the implementation for each.
//   matmul f32|bf16 BATCH M N K
//   conv fwd|grad_x|grad_w f32|bf16 GROUPS N C O, then for height and width: X W Y STRIDE PAD_LO PAD_HI DILATION
// Threads: OMP_NUM_THREADS. Least of the repetitions, as for ours.
#include <chrono>
#include <iostream>
#include <oneapi/dnnl/dnnl.hpp>
#include <sstream>
#include <string>
#include <unordered_map>

using namespace dnnl;
using dims = memory::dims;

static engine cpu(engine::kind::cpu, 0);
static const auto ANY = memory::format_tag::any;
static const auto DIRECT = algorithm::convolution_direct;

static memory filled(const memory::desc &d)
{
    memory m(d, cpu);
    auto *const p = static_cast<unsigned char *>(m.get_data_handle());
    for (size_t i = 0; i < d.get_size(); i++) p[i] = i % 2 ? 0x3c : (unsigned char)(i * 37 % 251); // 0.01 or so in both types
    return m;
}

static double least_ms(const primitive &p, const std::unordered_map<int, memory> &args)
{
    stream s(cpu);
    double best = 1e30, spent = 0;
    for (int i = 0; i < 5 || (spent < 60 && i < 1000); i++) {
        const auto start = std::chrono::steady_clock::now();
        p.execute(s, args);
        s.wait();
        const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
        spent += ms;
        if (i > 1 && ms < best) best = ms;
    }
    return best;
}

static memory::data_type type_of(const std::string &name)
{
    return name == "bf16" ? memory::data_type::bf16 : memory::data_type::f32;
}

static void time_matmul(std::istream &in)
{
    std::string type;
    memory::dim batch = 0, m = 0, n = 0, k = 0;
    in >> type >> batch >> m >> n >> k;
    const auto t = type_of(type);
    const bool flat = batch == 1;
    const memory::desc a(flat ? dims{m, k} : dims{batch, m, k}, t, ANY), b(flat ? dims{k, n} : dims{batch, k, n}, t, ANY),
        c(flat ? dims{m, n} : dims{batch, m, n}, t, ANY);
#if DNNL_VERSION_MAJOR >= 3
    const matmul::primitive_desc pd(cpu, a, b, c);
#else
    const matmul::primitive_desc pd({a, b, c}, cpu);
#endif
    const double ms = least_ms(matmul(pd), {{DNNL_ARG_SRC, filled(pd.src_desc())}, {DNNL_ARG_WEIGHTS, filled(pd.weights_desc())},
                                            {DNNL_ARG_DST, filled(pd.dst_desc())}});
    std::cout << ms << " " << pd.impl_info_str() << std::endl;
}

struct conv_shape {
    memory::desc x, w, y;
    dims stride, dilation, lo, hi;
};

static convolution_forward::primitive_desc forward_of(const conv_shape &c)
{
#if DNNL_VERSION_MAJOR >= 3
    return {cpu, prop_kind::forward_training, DIRECT, c.x, c.w, c.y, c.stride, c.dilation, c.lo, c.hi};
#else
    return {{prop_kind::forward_training, DIRECT, c.x, c.w, c.y, c.stride, c.dilation, c.lo, c.hi}, cpu};
#endif
}

static void time_forward(const conv_shape &c)
{
    const auto pd = forward_of(c);
    const double ms =
        least_ms(convolution_forward(pd), {{DNNL_ARG_SRC, filled(pd.src_desc())}, {DNNL_ARG_WEIGHTS, filled(pd.weights_desc())},
                                           {DNNL_ARG_DST, filled(pd.dst_desc())}});
    std::cout << ms << " " << pd.impl_info_str() << std::endl;
}

static void time_grad_x(const conv_shape &c)
{
    const auto hint = forward_of(c);
#if DNNL_VERSION_MAJOR >= 3
    const convolution_backward_data::primitive_desc pd(cpu, DIRECT, c.x, c.w, c.y, c.stride, c.dilation, c.lo, c.hi, hint);
#else
    const convolution_backward_data::primitive_desc pd({DIRECT, c.x, c.w, c.y, c.stride, c.dilation, c.lo, c.hi}, cpu, hint);
#endif
    const double ms = least_ms(convolution_backward_data(pd),
                               {{DNNL_ARG_DIFF_DST, filled(pd.diff_dst_desc())}, {DNNL_ARG_WEIGHTS, filled(pd.weights_desc())},
                                {DNNL_ARG_DIFF_SRC, filled(pd.diff_src_desc())}});
    std::cout << ms << " " << pd.impl_info_str() << std::endl;
}

static void time_grad_w(const conv_shape &c)
{
    const auto hint = forward_of(c);
#if DNNL_VERSION_MAJOR >= 3
    const convolution_backward_weights::primitive_desc pd(cpu, DIRECT, c.x, c.w, c.y, c.stride, c.dilation, c.lo, c.hi, hint);
#else
    const convolution_backward_weights::primitive_desc pd({DIRECT, c.x, c.w, c.y, c.stride, c.dilation, c.lo, c.hi}, cpu, hint);
#endif
    const double ms = least_ms(convolution_backward_weights(pd),
                               {{DNNL_ARG_SRC, filled(pd.src_desc())}, {DNNL_ARG_DIFF_DST, filled(pd.diff_dst_desc())},
                                {DNNL_ARG_DIFF_WEIGHTS, filled(pd.diff_weights_desc())}});
    std::cout << ms << " " << pd.impl_info_str() << std::endl;
}

static void time_conv(std::istream &in)
{
    std::string direction, type;
    memory::dim groups = 0, n = 0, c = 0, o = 0;
    in >> direction >> type >> groups >> n >> c >> o;
    dims x{n, c}, y{n, o}, w{o / groups, c / groups}, stride(2), dilation(2), lo(2), hi(2);
    if (groups > 1) w.insert(w.begin(), groups);
    for (int i = 0; i < 2; i++) {
        memory::dim xd = 0, wd = 0, yd = 0;
        in >> xd >> wd >> yd >> stride[i] >> lo[i] >> hi[i] >> dilation[i];
        x.push_back(xd);
        w.push_back(wd);
        y.push_back(yd);
        dilation[i]--; // oneDNN counts from 0
    }
    const auto t = type_of(type);
    const conv_shape s{{x, t, ANY}, {w, t, ANY}, {y, t, ANY}, stride, dilation, lo, hi};
    if (direction == "fwd") time_forward(s);
    else if (direction == "grad_x") time_grad_x(s);
    else time_grad_w(s);
}

int main()
{
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream in(line);
        std::string what;
        in >> what;
        try {
            if (what == "matmul") time_matmul(in);
            else time_conv(in);
        } catch (const error &e) {
            std::cerr << "dnn: " << line << ": " << e.what() << std::endl;
            return 1;
        }
    }
    return 0;
}
