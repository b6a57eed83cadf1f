// pitch: copies a matrix to rows of another length; what is longer there is zeros.
//
// Copies of 16 bytes, by threads or by the copy engine, want rows that begin at multiples of 16
// bytes. Where those of an operand do not, it is copied to such rows before the multiplication, or
// the result from them after it, as part of it. A row is what lies side by side: of a column-major
// matrix, a column.
//
// Template:  T  of what is copied at once, 1 to 16 bytes: an element, or several where rows of both
//               begin at multiples of it
// Launch:    blocks of 32 x 8 threads, a warp for every row; any grid

template <class T>
__global__ void pitch(int length, int lines,  // elements that are copied of a row, and rows
                      const T* __restrict__ from,
                      int from_pitch,  // elements from one row to the next, at least `length`
                      T* __restrict__ to, int to_pitch)  // all of a row is written
{
    for (long long j = blockIdx.x * 8ll + threadIdx.y; j < lines; j += gridDim.x * 8ll) {
#pragma unroll 8
        for (int i = threadIdx.x; i < to_pitch; i += 32)
            to[j * to_pitch + i] = i < length ? from[j * from_pitch + i] : T{};
    }
}
