// What tensor cores multiply: 16-bit floats, two in a 32-bit register, the first in the low half;
// and TF32, a float32.
#pragma once

enum Dtype { BF16, F16, TF32 };

// Two floats rounded to the nearest, to even between two; NaN becomes 0x7FFF.
template <Dtype T>
__device__ __forceinline__ unsigned pack(float low, float high)
{
    unsigned two;
    if constexpr (T == BF16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}

// The inverse, exact.
template <Dtype T>
__device__ __forceinline__ float2 unpack(unsigned two)
{
    if constexpr (T == BF16)
        return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000));
    float2 x;
    asm("{\n\t.reg .f16 low, high;\n\tmov.b32 {low, high}, %2;\n\tcvt.f32.f16 %0, low;\n\tcvt.f32.f16 %1, high;\n\t}"
        : "=f"(x.x), "=f"(x.y)
        : "r"(two));
    return x;
}
