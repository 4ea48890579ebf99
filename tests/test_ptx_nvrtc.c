/* test_ptx_nvrtc.c: CUDA C through NVRTC and the PTX interpreter, for three GPUs: softmax, a sum by shuffles, a
 * tiled product in dynamic shared memory, f16, atomics, a switch, and CUDA's elementary functions against libm.
 * Skipped where there is no NVRTC. */
#include "ptx_case.h"

#include "nvrtc_case.h"

#include <math.h>

/* uses: fakeptx */

static const char *const archs[] = { "compute_75", "compute_90", "compute_120" };
static bool available;

static void compile(const char *text, const char *arch)
{
    static char log[4000];
    char *const ptx = nvrtc_ptx(text, arch, log, sizeof log);
    if (!ptx) fail_msg("%s: %s", arch, log);
    use(ptx);
    free(ptx);
}

static void run_3d(const char *kernel, const unsigned grid[3], const unsigned block[3], size_t dynamic,
                   const void *params)
{
    const ptx_launch l = { .grid = { grid[0], grid[1], grid[2] }, .block = { block[0], block[1], block[2] },
                           .dynamic_shared = dynamic, .params = params, .seed = seed, .check_races = true };
    if (ptx_run(ptx_find(module, kernel), &l, &mem, &fault)) fail_msg("%s", fault.text);
    if (memory.n_reports) fail_msg("%s", memory.first);
}

static float *numbers(int n, float scale)
{
    float *const v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    for (int i = 0; i < n; i++) v[i] = (float)((i * 7919 + 13) % 1000 - 500) / 500 * scale;
    return v;
}

/* ---- kernels as people write them -------------------------------------------------------------------------------- */

static const char softmax_text[] =
    "extern \"C\" __global__ void softmax(const float *x, float *y, int n) {\n"
    "  __shared__ float s[256];\n"
    "  const int t = threadIdx.x;\n"
    "  const float *r = x + (long long)blockIdx.x * n;\n"
    "  float m = -INFINITY_;\n"
    "  for (int i = t; i < n; i += 256) m = fmaxf(m, r[i]);\n"
    "  s[t] = m; __syncthreads();\n"
    "  for (int k = 128; k; k >>= 1) { if (t < k) s[t] = fmaxf(s[t], s[t + k]); __syncthreads(); }\n"
    "  m = s[0]; __syncthreads();\n"
    "  float a = 0;\n"
    "  for (int i = t; i < n; i += 256) a += __expf(r[i] - m);\n"
    "  s[t] = a; __syncthreads();\n"
    "  for (int k = 128; k; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }\n"
    "  for (int i = t; i < n; i += 256) y[(long long)blockIdx.x * n + i] = __expf(r[i] - m) / s[0];\n"
    "}\n";

static void test_softmax(void **state)
{
    (void)state;
    if (!available) skip();
    enum { ROWS = 5, COLUMNS = 700 };
    float *const x = numbers(ROWS * COLUMNS, 20);
    char text[2000];
    snprintf(text, sizeof text, "#define INFINITY_ __int_as_float(0x7f800000)\n%s", softmax_text);
    for (size_t a = 0; a < COUNT(archs); a++) {
        compile(text, archs[a]);
        float first[ROWS * COLUMNS];
        for (seed = 0; seed < 3; seed++) {
            struct { uint64_t x, y; int n; } p = { give_copy(x, sizeof first), give(sizeof first), COLUMNS };
            run_3d("softmax", (unsigned[]){ ROWS, 1, 1 }, (unsigned[]){ 256, 1, 1 }, 0, &p);
            if (seed == 0) memcpy(first, host(p.y), sizeof first);
            assert_memory_equal(first, host(p.y), sizeof first); /* the order of threads does not tell */
        }
        for (int r = 0; r < ROWS; r++) {
            double most = -INFINITY, sum = 0;
            for (int i = 0; i < COLUMNS; i++) most = fmax(most, (double)x[r * COLUMNS + i]);
            for (int i = 0; i < COLUMNS; i++) sum += exp((double)x[r * COLUMNS + i] - most);
            for (int i = 0; i < COLUMNS; i++) {
                const double want = exp((double)x[r * COLUMNS + i] - most) / sum;
                assert_true(fabs((double)first[r * COLUMNS + i] - want) <= 1e-5 * want + 1e-12);
            }
        }
        release_all();
    }
    free(x);
}

static const char gemm_text[] =
    "extern \"C\" __global__ void gemm(const float *a, const float *b, float *c, int n) {\n"
    "  extern __shared__ float s[];\n"
    "  float *as = s, *bs = s + 256;\n"
    "  const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;\n"
    "  float sum = 0;\n"
    "  for (int k = 0; k < n; k += 16) {\n"
    "    as[ty * 16 + tx] = row < n && k + tx < n ? a[row * n + k + tx] : 0;\n"
    "    bs[ty * 16 + tx] = k + ty < n && column < n ? b[(k + ty) * n + column] : 0;\n"
    "    __syncthreads();\n"
    "    for (int j = 0; j < 16; j++) sum += as[ty * 16 + j] * bs[j * 16 + tx];\n"
    "    __syncthreads();\n"
    "  }\n"
    "  if (row < n && column < n) c[row * n + column] = sum;\n"
    "}\n"
    "extern \"C\" __global__ void racy(const float *a, float *c) {\n"
    "  __shared__ float s[64];\n"
    "  s[threadIdx.x] = a[threadIdx.x];\n"
    "  c[threadIdx.x] = s[63 - threadIdx.x];\n"
    "}\n";

static void test_gemm(void **state)
{
    (void)state;
    if (!available) skip();
    enum { N = 70 };
    float *const a = numbers(N * N, 1), *const b = numbers(N * N, 2);
    for (size_t k = 0; k < COUNT(archs); k++) {
        compile(gemm_text, archs[k]);
        struct {
            uint64_t a, b, c;
            int n;
        } p = { give_copy(a, sizeof(float[N * N])), give_copy(b, sizeof(float[N * N])), give(sizeof(float[N * N])), N };
        run_3d("gemm", (unsigned[]){ 5, 5, 1 }, (unsigned[]){ 16, 16, 1 }, 2048, &p);
        const float *const c = host(p.c);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                float want = 0; /* in the kernel's order, fused: the very same bits */
                for (int q = 0; q < N; q++) want = fmaf(a[i * N + q], b[q * N + j], want);
                if (c[i * N + j] != want) fail_msg("%d, %d: %g, not %g", i, j, (double)c[i * N + j], (double)want);
            }
        assert_int_equal(LAUNCH("racy", 1, 64, p.a, p.c), 0);
        assert_int_equal(memory.n_reports, 1);
        assert_non_null(strstr(memory.first, "a race in shared memory"));
        release_all();
    }
    free(a);
    free(b);
}

static const char warp_text[] =
    "extern \"C\" __global__ void rows(const float *x, float *y, unsigned *votes, int n) {\n"
    "  const int lane = threadIdx.x & 31, row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);\n"
    "  float a = 0;\n"
    "  for (int i = lane; i < n; i += 32) a += x[row * n + i];\n"
    "  const unsigned positive = __ballot_sync(~0u, a > 0);\n"
    "  for (int k = 16; k; k >>= 1) a += __shfl_xor_sync(~0u, a, k);\n"
    "  if (lane == 0) { y[row] = a; votes[row] = positive; }\n"
    "}\n"
    "extern \"C\" __global__ void histogram(const unsigned char *x, int *bins, float *sum, int n) {\n"
    "  __shared__ int own[16];\n"
    "  if (threadIdx.x < 16) own[threadIdx.x] = 0;\n"
    "  __syncthreads();\n"
    "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < n) {\n"
    "    int k;\n"
    "    switch (x[i] & 7) { case 0: k = 3; break; case 1: k = 14; break; case 2: k = 1; break; case 3: k = 5; break;\n"
    "      case 4: k = 9; break; case 5: k = 2; break; case 6: k = 6; break; default: k = x[i] >> 4; }\n"
    "    atomicAdd(&own[k], 1); atomicAdd(sum, 0.5f);\n"
    "  }\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);\n"
    "}\n"
    "extern \"C\" __global__ void local(const int *index, int *y) {\n" /* an array that cannot live in registers */
    "  int a[20];\n"
    "  for (int i = 0; i < 20; i++) a[i] = i * i + threadIdx.x;\n"
    "  for (int i = 0; i < 5; i++) a[index[(threadIdx.x + i) & 15]] += i;\n"
    "  int s = 0;\n"
    "  for (int i = 0; i < 20; i++) s = s * 3 + a[i];\n"
    "  y[threadIdx.x] = s;\n"
    "}\n";

static void check_rows(void)
{
    enum { ROWS = 6, N = 100 };
    float *const x = numbers(ROWS * N, 1);
    struct {
        uint64_t x, y, votes;
        int n;
    } p = { give_copy(x, sizeof(float[ROWS * N])), give(ROWS * 4), give(ROWS * 4), N };
    run_3d("rows", (unsigned[]){ 2, 1, 1 }, (unsigned[]){ 96, 1, 1 }, 0, &p);
    for (int r = 0; r < ROWS; r++) {
        float part[32] = { 0 };
        uint32_t votes = 0;
        for (int i = 0; i < N; i++) part[i % 32] += x[r * N + i];
        for (int i = 0; i < 32; i++) votes |= (uint32_t)(part[i] > 0) << i;
        for (int k = 16; k; k >>= 1)
            for (int i = 0; i < k; i++) part[i] += part[i + k]; /* lane 0 sums in this order */
        assert_true(((float *)host(p.y))[r] == part[0] && ((uint32_t *)host(p.votes))[r] == votes);
    }
    free(x);
}

static void check_histogram(void)
{
    enum { N = 1000 };
    static const int place[] = { 3, 14, 1, 5, 9, 2, 6 };
    unsigned char x[N];
    int want[16] = { 0 };
    const int zero[17] = { 0 };
    for (int i = 0; i < N; i++) {
        x[i] = (unsigned char)(i * 37 + i / 3);
        want[(x[i] & 7) < 7 ? place[x[i] & 7] : x[i] >> 4]++;
    }
    struct { uint64_t x, bins, sum; int n; } p = { give_copy(x, N), give_copy(zero, 64), give_copy(zero, 4), N };
    run_3d("histogram", (unsigned[]){ 8, 1, 1 }, (unsigned[]){ 128, 1, 1 }, 0, &p);
    assert_memory_equal(host(p.bins), want, sizeof want);
    assert_true(*(float *)host(p.sum) == N * 0.5f);
}

static void check_local(void)
{
    int index[16];
    for (int i = 0; i < 16; i++) index[i] = i * 7 % 20;
    struct { uint64_t index, y; } p = { give_copy(index, sizeof index), give(64 * 4) };
    run_3d("local", (unsigned[]){ 1, 1, 1 }, (unsigned[]){ 64, 1, 1 }, 0, &p);
    for (int t = 0; t < 64; t++) {
        unsigned a[20], s = 0;
        for (int i = 0; i < 20; i++) a[i] = (unsigned)(i * i + t);
        for (int i = 0; i < 5; i++) a[index[(t + i) & 15]] += (unsigned)i;
        for (int i = 0; i < 20; i++) s = s * 3 + a[i];
        assert_int_equal(((unsigned *)host(p.y))[t], s);
    }
}

static void test_warps_and_atomics(void **state)
{
    (void)state;
    if (!available) skip();
    for (size_t a = 0; a < COUNT(archs); a++) {
        compile(warp_text, archs[a]);
        check_rows();
        check_histogram();
        check_local();
        release_all();
    }
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static double rsqrt_of(double x) { return 1 / sqrt(x); }
static double sinpi_of(double x) { return sin(3.14159265358979323846 * x); }
static double normal_of(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static double pow_of(double x) { return pow(fabs(x), 1.7); }
static double fmod_of(double x) { return fmod(x, (double)0.7f); }
static double atan2_of(double x) { return atan2(x, 0.3 + 0 * x); }

/* in f32 and f64; bounds in units of the last place, CUDA's own with some air */
static const struct { const char *name, *f, *d; double (*want)(double); double low, high, ulp;
} functions[] = { { "exp", "expf(x)", "exp(x)", exp, -80, 80, 3 },
                  { "exp2", "exp2f(x)", "exp2(x)", exp2, -100, 100, 3 },
                  { "expm1", "expm1f(x)", "expm1(x)", expm1, -10, 10, 3 },
                  { "log", "logf(x)", "log(x)", log, 1e-5, 1000, 3 },
                  { "log2", "log2f(x)", "log2(x)", log2, 1e-5, 1000, 3 },
                  { "log1p", "log1pf(x)", "log1p(x)", log1p, -0.9, 100, 4 },
                  { "sin", "sinf(x)", "sin(x)", sin, -300000, 300000, 4 },
                  { "cos", "cosf(x)", "cos(x)", cos, -100, 100, 4 },
                  { "tan", "tanf(x)", "tan(x)", tan, -1.5, 1.5, 6 },
                  { "asin", "asinf(x)", "asin(x)", asin, -1, 1, 6 },
                  { "acos", "acosf(x)", "acos(x)", acos, -1, 1, 6 },
                  { "atan", "atanf(x)", "atan(x)", atan, -50, 50, 5 },
                  { "sinh", "sinhf(x)", "sinh(x)", sinh, -20, 20, 5 },
                  { "cosh", "coshf(x)", "cosh(x)", cosh, -20, 20, 5 },
                  { "tanh", "tanhf(x)", "tanh(x)", tanh, -10, 10, 5 },
                  { "erf", "erff(x)", "erf(x)", erf, -4, 4, 5 },
                  { "erfc", "erfcf(x)", "erfc(x)", erfc, -3, 5, 9 },
                  { "lgamma", "lgammaf(x)", "lgamma(x)", lgamma, 3, 50, 9 },
                  { "cbrt", "cbrtf(x)", "cbrt(x)", cbrt, -1000, 1000, 4 },
                  { "sqrt", "sqrtf(x)", "sqrt(x)", sqrt, 0, 1e6, 0.5 },
                  { "rsqrt", "rsqrtf(x)", "rsqrt(x)", rsqrt_of, 1e-3, 1e6, 3 },
                  { "sinpi", "sinpif(x)", "sinpi(x)", sinpi_of, -2.2, 2.2, 12 },
                  { "normcdf", "normcdff(x)", "normcdf(x)", normal_of, -4, 4, 12 },
                  { "pow", "powf(fabsf(x), 1.7f)", "pow(fabs(x), 1.7)", pow_of, -50, 50, 400 },
                  { "fmod", "fmodf(x, 0.7f)", "fmod(x, (double)0.7f)", fmod_of, -50, 50, 0 },
                  { "floor", "floorf(x)", "floor(x)", floor, -50, 50, 0 },
                  { "rint", "rintf(x)", "rint(x)", rint, -50, 50, 0 },
                  { "trunc", "truncf(x)", "trunc(x)", trunc, -50, 50, 0 },
                  { "round", "roundf(x)", "round(x)", round, -50, 50, 0 },
                  { "atan2", "atan2f(x, 0.3f)", "atan2(x, 0.3)", atan2_of, -9, 9, 5 } };

enum { POINTS = 2048 };

static void check_function(size_t k, bool wide)
{
    static float x[POINTS];
    static double xd[POINTS];
    for (int i = 0; i < POINTS; i++) {
        x[i] = (float)(functions[k].low + (functions[k].high - functions[k].low) * i / (POINTS - 1));
        xd[i] = (double)x[i];
    }
    const size_t size = wide ? sizeof xd : sizeof x;
    struct { uint64_t x, y; } p = { give_copy(wide ? (void *)xd : (void *)x, size), give(size) };
    char name[40];
    snprintf(name, sizeof name, "%s_%s", functions[k].name, wide ? "d" : "f");
    run_3d(name, (unsigned[]){ POINTS / 128, 1, 1 }, (unsigned[]){ 128, 1, 1 }, 0, &p);
    for (int i = 0; i < POINTS; i++) {
        const double want = functions[k].want(xd[i]),
                     have = wide ? ((double *)host(p.y))[i] : (double)((float *)host(p.y))[i];
        const double ulp = wide ? fmax(functions[k].ulp, 0.5) * 2.3e-16 * (functions[k].ulp > 0 ? 4 : 0)
                                : functions[k].ulp * 1.2e-7;
        if (!(fabs(have - want) <=
              ulp * fabs(want) + (functions[k].ulp > 0 ? (wide ? 1e-15 : 1e-7 * (fabs(want) < 0.1)) : 0)))
            fail_msg("%s of %.9g: %.17g, not %.17g", name, xd[i], have, want);
    }
}

static void test_functions(void **state)
{
    (void)state;
    if (!available) skip();
    static char text[20000];
    size_t at = 0;
    for (size_t k = 0; k < COUNT(functions); k++) {
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "extern \"C\" __global__ void %s_f(const float *in, float *out) {"
                               "int i = blockIdx.x * blockDim.x + threadIdx.x; float x = in[i]; out[i] = %s; }\n",
                               functions[k].name, functions[k].f);
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "extern \"C\" __global__ void %s_d(const double *in, double *out) {"
                               "int i = blockIdx.x * blockDim.x + threadIdx.x; double x = in[i]; out[i] = %s; }\n",
                               functions[k].name, functions[k].d);
    }
    const size_t n = getenv("SWOOP_TEST_ALL") ? COUNT(archs) : 1;
    for (size_t a = 0; a < n; a++) {
        compile(text, archs[a]);
        for (size_t k = 0; k < COUNT(functions); k++) {
            check_function(k, false);
            check_function(k, true);
        }
        release_all(); /* also the module's tables */
    }
}

static int look(void **state)
{
    (void)state;
    available = nvrtc_load();
    if (!available) fprintf(stderr, "skipped: there is no NVRTC\n");
    return 0;
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, clean)
    const struct CMUnitTest tests[] = { T(test_softmax), T(test_gemm), T(test_warps_and_atomics), T(test_functions) };
    return cmocka_run_group_tests(tests, look, NULL);
}
