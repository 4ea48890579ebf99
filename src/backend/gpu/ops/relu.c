/* relu.c: relu of a plan's result, in place: see relu.k. After a vendor's library (cuda/lt_matmul.c, dnn_conv.c). */
#include "backend/gpu/ops/big.h"
#include "backend/gpu/ops/columns.h"

/* In whatever order its axes lie: all memory from the first element to the last is the tensor's. */
static bool is_solid(const sw__desc *d)
{
    int64_t last = 0;
    for (int i = 0; i < d->rank; i++) {
        if (d->stride[i] < 0) return false;
        last += (d->dim[i] - 1) * d->stride[i];
    }
    return last + 1 == sw__desc_elements(d);
}

sw_status sw__big_relu(sw__gpu_plan *p, int bind, const sw__desc *d)
{
    const int64_t n = sw__desc_elements(d);
    const int size = sw__gpu_lanes(p->gpu, 256);
    const int64_t groups = SW_MIN((n + size - 1) / size, (int64_t)p->gpu->target.units * 32);
    sw__gpu_place place;
    sw__gpu_macros m = { .n = 0 };
    sw__gpu_place_of(d, -1, "c", "", &place);
    sw__gpu_put_values(&m, (sw_dtype)d->dtype);
    sw__gpu_put(&m, "SIZE", size);
    sw__gpu_put_text(&m, "Y_AT", is_solid(d) ? "c" : place.text);
    const sw__gpu_arg args[] = { SW_GPU_BIND(bind), SW_GPU_INT(n), SW_GPU_INT(groups * size) };
    return n == 0 ? SW_OK : sw__gpu_step(p, "relu", &m, (uint32_t)groups, size, 1, args, 3);
}
