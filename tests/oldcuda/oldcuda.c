/* oldcuda.c: NVIDIA libraries that are no good, for test_cuda_faults.c: a driver or NVRTC of an old version, or one that lacks
 * a function (which the build renames). Every function answers with an error, save those that tell the version: 11.8, or
 * what OLDCUDA_VERSION says (12080). */
#include "backend/cuda/cu.h"

#include <stdlib.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

int old_version(void);
int old_version(void)
{
    const char *const text = getenv("OLDCUDA_VERSION");
    return text != NULL ? (int)strtol(text, NULL, 10) : 11080;
}

#define ANSWER(name, since, parameters)                                                                                \
    sw__cu_result name parameters;                                                                                     \
    sw__cu_result name parameters                                                                                      \
    {                                                                                                                  \
        return 999;                                                                                                    \
    }

#ifdef OLD_DRIVER
#define cuDriverGetVersion unused_version
SW_CU_FUNCTIONS(ANSWER)
#undef cuDriverGetVersion
sw__cu_result cuDriverGetVersion(int *version);
sw__cu_result cuDriverGetVersion(int *version)
{
    *version = old_version();
    return SW_CU_OK;
}
#else
#define nvrtcVersion unused_version
SW_NVRTC_FUNCTIONS(ANSWER)
#undef nvrtcVersion
sw__cu_result nvrtcVersion(int *major, int *minor);
sw__cu_result nvrtcVersion(int *major, int *minor)
{
    *major = old_version() / 1000;
    *minor = old_version() % 1000 / 10;
    return SW_CU_OK;
}
#endif
