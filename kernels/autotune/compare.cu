// compare: do two outputs agree? One pass over both and over the sums of the magnitudes of their
// products.
//
//     |found - expected| <= limit * magnitudes + rounding * |expected| + least    for every element
//
// where the right side is what sums in another order, one rounding to the output's dtype, and
// numbers too small for it may differ by. Infinite or NaN agrees with the same. The idea: what
// differs is counted, not listed, so that a second of CuPy's compiler and five temporaries become
// one read of three arrays at the memory's speed.
//
// Template:  T  of the outputs: Float, Sixteen<BF16>, Sixteen<F16> or E4m3, whose magnitudes are
//               Sixteen<BF16>
// Launch:    blocks of THREADS threads; any grid

#include "half.cuh"

using u64 = unsigned long long;

constexpr int THREADS = 256;

struct Float {
    using bits = unsigned;
    using size = Float;
    static __device__ __forceinline__ float number(bits x) { return __uint_as_float(x); }
};

template <Dtype D>
struct Sixteen {
    using bits = unsigned short;
    using size = Sixteen;
    static __device__ __forceinline__ float number(bits x) { return unpack<D>(x).x; }
};

// Sign, four bits of exponent (bias 7), three of fraction; 0x7F is NaN.
struct E4m3 {
    using bits = unsigned char;
    using size = Sixteen<BF16>;
    static __device__ __forceinline__ float number(bits x)
    {
        const int exponent = x >> 3 & 15, fraction = x & 7;
        const float size = exponent ? (8 + fraction) * __int_as_float((exponent - 10 + 127) << 23)
                                    : fraction * 0x1p-9f;
        return __uint_as_float(
            (x & 0x7f) == 0x7f ? 0x7fffffffu : __float_as_uint(size) | (x & 0x80u) << 24);
    }
};

// What `compare` found; zeros before it.
struct Verdict {
    u64 wrong;  // elements
    u64 first;  // count minus the place of the first of them in memory; 0: none
    u64 worst;  // bits of the float32: the largest error of any element over what it may be
};

template <class T>
__global__ void __launch_bounds__(THREADS) compare(
    u64 count, const typename T::bits* __restrict__ found,
    const typename T::bits* __restrict__ expected,
    const typename T::size::
        bits* __restrict__ magnitudes,  // null: none, so that nothing but the same number agrees
    float limit, float rounding, float least, Verdict* verdict)
{
    u64 wrong = 0, first = 0;
    float worst = 0.0f;
    for (u64 i = blockIdx.x * (u64)THREADS + threadIdx.x; i < count;
         i += (u64)gridDim.x * THREADS) {
        const float x = T::number(found[i]), y = T::number(expected[i]);
        if (x == y || (isnan(x) && isnan(y))) continue;
        const float error = fabsf(x - y);
        const float most =
            magnitudes ? limit * T::size::number(magnitudes[i]) + rounding * fabsf(y) + least
                       : 0.0f;
        const bool right = error <= most && isfinite(x) && isfinite(y);
        const float ratio = error / most;  // infinite or NaN where nothing may differ
        if (!right) ++wrong, first = max(first, count - i);
        worst = fmaxf(
            worst, isnan(ratio) || (!right && ratio <= 1.0f) ? __int_as_float(0x7f800000) : ratio);
    }
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) {
        wrong += __shfl_down_sync(~0u, wrong, lanes);
        first = max(first, __shfl_down_sync(~0u, first, lanes));
        worst = fmaxf(worst, __shfl_down_sync(~0u, worst, lanes));
    }
    if (threadIdx.x % 32) return;
    if (wrong) {
        atomicAdd(&verdict->wrong, wrong);
        atomicMax(&verdict->first, first);
    }
    if (worst > 0.0f) atomicMax(&verdict->worst, (u64)__float_as_uint(worst));
}
