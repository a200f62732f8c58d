/* The macros of CUDA's crt/host_defines.h that its C headers use. The package with the original is often not installed;
   where it is, the original is found first. */
#ifndef ABSENT_HOST_DEFINES_H
#define ABSENT_HOST_DEFINES_H
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDAAPI
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __noinline__ __attribute__((noinline))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __no_return__ __attribute__((noreturn))
#define __thread__ __thread
#define __import__
#define __export__
#define __cdecl
#define __annotate__(a) __attribute__((a))
#define __location__(a) __annotate__(a)
#define __specialization_static static
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define CUDA_FORMAT_SPECIFIER(a, b)
#endif
