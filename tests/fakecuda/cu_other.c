/* cu_other.c: functions of the driver that the real cuDNN (behind the fake one) looks for when it is loaded, and
 * complains about where they are missing. Nothing that runs under the double calls them. */
#define OTHER(name)                                                                                                    \
    __attribute__((visibility("default"))) int name(void);                                                             \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return 801;                                                                                                    \
    } /* CUDA_ERROR_NOT_SUPPORTED */

OTHER(cuCtxGetLimit)
OTHER(cuCtxPopCurrent)
OTHER(cuCtxPushCurrent)
OTHER(cuStreamGetCtx)
OTHER(cuLinkCreate)
OTHER(cuLinkAddData)
OTHER(cuLinkComplete)
OTHER(cuLinkDestroy)
OTHER(cuLaunchCooperativeKernel)
OTHER(cuLibraryLoadFromFile)
OTHER(cuKernelSetAttribute)
OTHER(cuKernelGetAttribute)
OTHER(cuOccupancyMaxPotentialClusterSize)
OTHER(cuLaunchKernelEx)
