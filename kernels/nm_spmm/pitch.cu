// pitch: copies a column-major matrix to columns of another length; what is longer there is zeros.
//
// The kernels copy 16 bytes of a column of A at a time, from multiples of 16: where m is no multiple of 4 floats, A is
// copied to such columns before the multiplication, as part of it.
//
// Template:  T  of an element: float, or unsigned short for a 16-bit type's bits
// Launch:    blocks of 32 x 8 threads, a warp for every column; any grid

template <class T>
__global__ void pitch(
    int rows, int columns,                       // of the matrix
    const T* __restrict__ from, int from_pitch,  // elements from one column to the next, at least `rows`
    T* __restrict__ to, int to_pitch)            // all of a column is written
{
    for (long long j = blockIdx.x * 8ll + threadIdx.y; j < columns; j += gridDim.x * 8ll) {
#pragma unroll 4
        for (int i = threadIdx.x; i < to_pitch; i += 32)
            to[j * to_pitch + i] = i < rows ? from[j * from_pitch + i] : T(0);
    }
}
