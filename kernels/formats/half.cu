// half: float32 to 16 bits and back, element by element, as half.py says; and random numbers as
// splitmix.py has them.
//
// Template:  T   BF16 or F16
#include "half.cuh"
#include "splitmix.cuh"

constexpr int THREADS = 256;

template <Dtype T>
__global__ void __launch_bounds__(THREADS)
    to_bits(long long size, const float* __restrict__ x, unsigned short* __restrict__ bits)
{
    const long long i = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (i < size) bits[i] = isnan(x[i]) ? 0x7FFF : (unsigned short)pack<T>(x[i], 0.f);
}

template <Dtype T>
__global__ void __launch_bounds__(THREADS)
    from_bits(long long size, const unsigned short* __restrict__ bits, float* __restrict__ x)
{
    const long long i = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (i < size) x[i] = unpack<T>(bits[i]).x;
}

// first: 2^63 - the first element that T does not hold, 0 before; NaN is NaN.
template <Dtype T>
__global__ void __launch_bounds__(THREADS)
    not_held(long long size, const float* __restrict__ x, unsigned long long* first)
{
    const long long i = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (i < size && !isnan(x[i]) && unpack<T>(pack<T>(x[i], 0.f)).x != x[i])
        atomicMax(first, (1ull << 63) - i);
}

__device__ __forceinline__ float symmetric(u64 key, u64 i)
{
    return ((float)(random_u32(key, i) >> 8) - 8388608.f + 0.5f) * 0x1p-23f;
}

template <Dtype T>
__global__ void __launch_bounds__(THREADS)
    uniform(long long size, u64 key, unsigned short* __restrict__ bits)
{
    const long long i = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (i < size) bits[i] = (unsigned short)pack<T>(symmetric(key, i), 0.f);
}

// keep: the bits of a float32 that stay.
__global__ void __launch_bounds__(THREADS)
    uniform_float(long long size, u64 key, unsigned keep, float* __restrict__ x)
{
    const long long i = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (i < size) x[i] = __uint_as_float(__float_as_uint(symmetric(key, i)) & keep);
}
