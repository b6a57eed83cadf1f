// wgmma's left operand in TF32 from registers: what kernels share whose rows come through them
// (sm_90a).
#pragma once

// Four values of a lane, as WgmmaTf32 wants them (wgmma.cuh).
__device__ __forceinline__ uint4 bits(float x, float y, float z, float w)
{
    return {__float_as_uint(x), __float_as_uint(y), __float_as_uint(z), __float_as_uint(w)};
}

// Nothing that makes these registers may be moved behind this line, among the wgmma that read them:
// ptxas would have each of those wait for the one before.
__device__ __forceinline__ void pin(uint4& x)
{
    asm volatile("" : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w)::"memory");
}
