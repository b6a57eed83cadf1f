// Shared memory by address: 32 bits that are computed once. Of a pointer the compiler makes them
// anew in every step.
#pragma once

__device__ __forceinline__ unsigned address(const void* p)
{
    unsigned x = static_cast<unsigned>(__cvta_generic_to_shared(p));
    asm volatile("" : "+r"(x));  // from here on it is a value that nobody can make again
    return x;
}

// 16 bytes. In its place among barriers, as all of these are.
__device__ __forceinline__ float4 load_shared_float4(unsigned address)
{
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address));
    return x;
}
