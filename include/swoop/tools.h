/* swoop/tools.h: before one buys or waits: GPUs that exist, for plans (sw_device_open_planned, sw_run_plan).
 * On top of device.h and train.h. */
#ifndef SWOOP_TOOLS_H
#define SWOOP_TOOLS_H

#include "swoop/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A GPU of the catalogue (data/gpus.csv has the sources of the figures). 0 where a figure is not known. */
typedef struct sw_gpu_entry {
    sw_gpu_model model;
    double matrix_flops; /* f16 products with f32 sums on matrix units, operations a second */
    double watts, price; /* at most; US dollars at launch */
    int year;
} sw_gpu_entry;

/* Fills at most max entries, returns how many there are. */
SW_API int sw_gpu_list(sw_gpu_entry *out, int max);
/* The GPU whose name holds all words of `name`, in any case ("h100 pcie", "rtx 4090"); of several the one with the
 * shortest name. SW_ERR_ARGUMENT with near names if there is none. */
SW_API sw_status sw_gpu_find(const char *name, sw_gpu_entry *out);

#ifdef __cplusplus
}
#endif
#endif
