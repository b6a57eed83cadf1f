// How rows that are too long for one task are cut, and where their parts lie in a table of tasks
// (async_sparse/planning.py).
#pragma once

// Tasks of a row of so many entries, each with `chunk` at most; 0: one.
__device__ __forceinline__ long long parts_of(long long length, int chunk)
{
    return chunk && length > chunk ? (length + chunk - 1) / chunk : 1;
}

// Entries of each of the parts but the last one: whole steps of 32.
__device__ __forceinline__ int even_part(int length, int parts)
{
    const int steps = 32 * parts;
    return (int)(((long long)length + steps - 1) / steps) * 32;
}

// Places that a cut row's parts have: a power of 2, or whole blocks of `block`.
__device__ __forceinline__ long long room_of(long long parts, int block)
{
    if (parts > block) return (parts + block - 1) / block * block;
    long long room = 1;
    while (room < parts) room *= 2;
    return room;
}
