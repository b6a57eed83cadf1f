// Four neighbouring floats at a multiple of 16 bytes, by one instruction.
#pragma once

__device__ __forceinline__ float4 load4(const float* p)
{
    return *reinterpret_cast<const float4*>(p);
}
__device__ __forceinline__ void store4(float* p, const float4& x)
{
    *reinterpret_cast<float4*>(p) = x;
}
