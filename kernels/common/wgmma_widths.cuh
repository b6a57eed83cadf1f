// The widths of wgmma that wgmma.cuh leaves out: with them N is any multiple of 8 up to 256. For
// 16-bit types and TF32, A and B in shared memory.
#pragma once

#include "wgmma.cuh"

#define WGMMA_R12 WGMMA_R8 ", %8, %9, %10, %11"
#define WGMMA_O12 WGMMA_O8, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define WGMMA_R20 WGMMA_R16 ", %16, %17, %18, %19"
#define WGMMA_O20 WGMMA_O16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define WGMMA_R24 WGMMA_R20 ", %20, %21, %22, %23"
#define WGMMA_O24 WGMMA_O20, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define WGMMA_R28 WGMMA_R24 ", %24, %25, %26, %27"
#define WGMMA_O28 WGMMA_O24, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define WGMMA_R36 WGMMA_R32 ", %32, %33, %34, %35"
#define WGMMA_O36 WGMMA_O32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define WGMMA_R40 WGMMA_R36 ", %36, %37, %38, %39"
#define WGMMA_O40 WGMMA_O36, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define WGMMA_R44 WGMMA_R40 ", %40, %41, %42, %43"
#define WGMMA_O44 WGMMA_O40, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define WGMMA_R52 WGMMA_R48 ", %48, %49, %50, %51"
#define WGMMA_O52 WGMMA_O48, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define WGMMA_R56 WGMMA_R52 ", %52, %53, %54, %55"
#define WGMMA_O56 WGMMA_O52, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define WGMMA_R60 WGMMA_R56 ", %56, %57, %58, %59"
#define WGMMA_O60 WGMMA_O56, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define WGMMA_R68 WGMMA_R64 ", %64, %65, %66, %67"
#define WGMMA_O68 WGMMA_O64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define WGMMA_R72 WGMMA_R68 ", %68, %69, %70, %71"
#define WGMMA_O72 WGMMA_O68, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define WGMMA_R76 WGMMA_R72 ", %72, %73, %74, %75"
#define WGMMA_O76 WGMMA_O72, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define WGMMA_R84 WGMMA_R80 ", %80, %81, %82, %83"
#define WGMMA_O84 WGMMA_O80, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define WGMMA_R88 WGMMA_R84 ", %84, %85, %86, %87"
#define WGMMA_O88 WGMMA_O84, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define WGMMA_R92 WGMMA_R88 ", %88, %89, %90, %91"
#define WGMMA_O92 WGMMA_O88, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define WGMMA_R100 WGMMA_R96 ", %96, %97, %98, %99"
#define WGMMA_O100 WGMMA_O96, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define WGMMA_R104 WGMMA_R100 ", %100, %101, %102, %103"
#define WGMMA_O104 WGMMA_O100, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define WGMMA_R108 WGMMA_R104 ", %104, %105, %106, %107"
#define WGMMA_O108 WGMMA_O104, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define WGMMA_R116 WGMMA_R112 ", %112, %113, %114, %115"
#define WGMMA_O116 WGMMA_O112, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define WGMMA_R120 WGMMA_R116 ", %116, %117, %118, %119"
#define WGMMA_O120 WGMMA_O116, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define WGMMA_R124 WGMMA_R120 ", %120, %121, %122, %123"
#define WGMMA_O124 WGMMA_O120, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])

// i0 to i3: numbers of the operands after the accumulators.
#define WGMMA_WIDTH(N, HALF, T, TYPE, i0, i1, i2, i3) \
    template <Major B> \
    struct Wgmma<N, T, B> { \
        static __device__ __forceinline__ void \
        dense(float* d, unsigned long long a, unsigned long long b, int add) \
        { \
            asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #i2 \
                         ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE \
                         " {" WGMMA_R##HALF "}, %" #i0 ", %" #i1 ", add, 1, 1, 0, %" #i3 "; }" \
                         : WGMMA_O##HALF \
                         : "l"(a), "l"(b), "r"(add), "n"((int)B)); \
        } \
    };
#define WGMMA_WIDTHS(N, HALF, i0, i1, i2, i3) \
    WGMMA_WIDTH(N, HALF, BF16, "bf16", i0, i1, i2, i3) \
    WGMMA_WIDTH(N, HALF, F16, "f16", i0, i1, i2, i3) \
    template <> \
    struct WgmmaTf32<N> { \
        static __device__ __forceinline__ void \
        dense(float* d, unsigned long long a, unsigned long long b, int add) \
        { \
            asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #i2 \
                         ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" WGMMA_R##HALF \
                         "}, %" #i0 ", %" #i1 ", add, 1, 1; }" \
                         : WGMMA_O##HALF \
                         : "l"(a), "l"(b), "r"(add)); \
        } \
    };

WGMMA_WIDTHS(24, 12, 12, 13, 14, 15)
WGMMA_WIDTHS(40, 20, 20, 21, 22, 23)
WGMMA_WIDTHS(48, 24, 24, 25, 26, 27)
WGMMA_WIDTHS(56, 28, 28, 29, 30, 31)
WGMMA_WIDTHS(72, 36, 36, 37, 38, 39)
WGMMA_WIDTHS(80, 40, 40, 41, 42, 43)
WGMMA_WIDTHS(88, 44, 44, 45, 46, 47)
WGMMA_WIDTHS(104, 52, 52, 53, 54, 55)
WGMMA_WIDTHS(112, 56, 56, 57, 58, 59)
WGMMA_WIDTHS(120, 60, 60, 61, 62, 63)
WGMMA_WIDTHS(136, 68, 68, 69, 70, 71)
WGMMA_WIDTHS(144, 72, 72, 73, 74, 75)
WGMMA_WIDTHS(152, 76, 76, 77, 78, 79)
WGMMA_WIDTHS(168, 84, 84, 85, 86, 87)
WGMMA_WIDTHS(176, 88, 88, 89, 90, 91)
WGMMA_WIDTHS(184, 92, 92, 93, 94, 95)
WGMMA_WIDTHS(200, 100, 100, 101, 102, 103)
WGMMA_WIDTHS(208, 104, 104, 105, 106, 107)
WGMMA_WIDTHS(216, 108, 108, 109, 110, 111)
WGMMA_WIDTHS(232, 116, 116, 117, 118, 119)
WGMMA_WIDTHS(240, 120, 120, 121, 122, 123)
WGMMA_WIDTHS(248, 124, 124, 125, 126, 127)
