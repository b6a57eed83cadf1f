// ldmatrix: 8 x 8 matrices of 16-bit elements from shared memory to the registers of a warp (sm_75;
// SASS: LDSM).
//
// Lane 8 q + r gives the address of row r of matrix q, 16 bytes at a multiple of 16, wherever the
// other rows are. Register q of lane 4 g + t then holds two elements of matrix q: (g, 2t) and (g,
// 2t + 1); transposed, (2t, g) and (2t + 1, g). Addresses count from the start of shared memory
// (__cvta_generic_to_shared). A matrix is read without bank conflicts where its rows lie in eight
// different 16-byte columns of a 128-byte line.
#pragma once

__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

// Two matrices: the addresses of lanes 16 to 31 are not looked at.
__device__ __forceinline__ void ldmatrix_x2(unsigned (&r)[2], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(row)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

// 32 bits for each thread, at an address counted likewise: what remains where ldmatrix cannot deal
// the elements out.
__device__ __forceinline__ unsigned load_shared_word(unsigned address)
{
    unsigned word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}

__device__ __forceinline__ void store_shared(unsigned address, unsigned short x)
{
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(x) : "memory");
}

// The inverse of ldmatrix, from the same lanes to the same rows (sm_90; SASS: STSM).
__device__ __forceinline__ void
stmatrix_x4(unsigned row, unsigned a, unsigned b, unsigned c, unsigned d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x2(unsigned row, unsigned a, unsigned b)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a), "r"(b)
        : "memory");
}

// Each matrix transposed: a lane's address is that of a column.
__device__ __forceinline__ void
stmatrix_x4_trans(unsigned column, unsigned a, unsigned b, unsigned c, unsigned d)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(column),
        "r"(a), "r"(b), "r"(c), "r"(d)
        : "memory");
}

__device__ __forceinline__ void stmatrix_x2_trans(unsigned column, unsigned a, unsigned b)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(column),
                 "r"(a), "r"(b)
                 : "memory");
}
