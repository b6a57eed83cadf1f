// Which two of a group of four columns 2:4 keeps.
#pragma once

// Two of four magnitudes, the larger ones, the lower column where they are equal: its index in bits
// 1..0, the other's, which is larger, in bits 3..2. Magnitudes are bit patterns without the sign,
// whose order as integers is the order of the numbers, with the NaNs above infinity. Where at most
// two are not zero, they are kept, and the lowest zeros fill the pair.
__device__ __forceinline__ unsigned two_largest(unsigned a, unsigned b, unsigned c, unsigned d)
{
    const int ab = a >= b, ac = a >= c, ad = a >= d, bc = b >= c, bd = b >= d, cd = c >= d;
    const bool keep_a = ab + ac + ad >= 2;  // it beats two of the three others
    const bool keep_b = !ab + bc + bd >= 2;
    const bool keep_c = !ac + !bc + cd >= 2;
    const bool keep_d = !ad + !bd + !cd >= 2;
    const unsigned low = keep_a ? 0 : keep_b ? 1 : 2;  // exactly two are kept
    const unsigned high = keep_d ? 3 : keep_c ? 2 : 1;
    return low | high << 2;
}
