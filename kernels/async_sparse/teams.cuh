// Who multiplies which rows in subwarp.cu: teams of a warp's lanes, and blocks for rows that would
// keep them waiting.
//
//   blocks  0 …             what `lengthy` has: rows of more than `most` entries, or parts of them
//           then            rows as they come, each by a team of `slots` slots: 32 / LANES of them
//                           are a warp
//           or, `sorted`    the longest first, and teams of all slots up to row end0 of that order,
//                           of half of them up to end1, ...: teams of a warp are done together
#pragma once

constexpr int WARPS = 8, LINE = 128;  // of a block; bytes that a prefetch brings

struct Team {
    int group, begin, end;  // of entries; group -1: none
    int cut;                // which of the cut rows this is a part of, or -1
    int slot, slots;        // this lane's of its team, or of the block
    bool block;             // all warps have this row
};

template <int LANES>
__device__ __forceinline__ Team
team_of(const int* row_ptr, int groups, int slots, int most, const int4* lengthy, int blocks,
        const int4* sorted, int skipped, int end0, int end1, int end2, int end3, int end4)
{
    constexpr int ROOM = 32 / LANES;
    static_assert(LANES * ROOM == 32, "teams share a warp");
    const int slot = threadIdx.x % 32 / LANES, warp = threadIdx.x / 32;
    if (blockIdx.x < blocks) {
        const int4 it = __ldg(lengthy + blockIdx.x);
        return {it.x, it.y, it.z, it.w, warp * ROOM + slot, WARPS * ROOM, true};
    }
    int which = (blockIdx.x - blocks) * WARPS + warp, first = 0, past = groups;
    if (sorted) {
        const int ends[] = {end0, end1, end2, end3, end4, groups};
        first = skipped, slots = ROOM;
#pragma unroll
        for (int i = 0; i < 6; ++i) {
            const int warps = (ends[i] - first + ROOM / slots - 1) / (ROOM / slots);
            past = ends[i];
            if (which < warps) break;
            which -= warps, first = past, slots = max(1, slots / 2);
        }
    }
    Team team{first + which * (ROOM / slots) + slot / slots, 0, 0, -1, slot % slots, slots, false};
    if (team.group >= past) team.group = -1;
    else if (sorted) {
        const int4 it = __ldg(sorted + team.group);
        team.group = it.x, team.begin = it.y, team.end = it.z;
    } else {
        team.begin = __ldg(row_ptr + team.group), team.end = __ldg(row_ptr + team.group + 1);
        if (team.end - team.begin > most) team.group = -1, team.end = team.begin;
    }
    return team;
}

__device__ __forceinline__ void prefetch(const void* from, long long bytes, long long line)
{
    if (line * LINE < bytes)
        asm volatile(
            "prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(from) + line * LINE));
}

// Asks L2 for col_idx, val and B, each of so many bytes, by the first `ahead` threads of the grid.
__device__ __forceinline__ void
fetch_ahead(int ahead, const void* col_idx, long long index_bytes, const void* val,
            long long val_bytes, const void* b, long long b_bytes)
{
    const long long thread = blockIdx.x * (32ll * WARPS) + threadIdx.x;
    if (thread >= ahead || blockIdx.y) return;
    for (long long line = thread; line * LINE < max(b_bytes, val_bytes); line += ahead) {
        prefetch(col_idx, index_bytes, line);
        prefetch(val, val_bytes, line);
        prefetch(b, b_bytes, line);
    }
}
