// Which SM a block runs on (SASS: S2R SR_VIRTUALSMID).
#pragma once

__device__ __forceinline__ unsigned sm_number()
{
    unsigned number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
}
