// An operator with entry points for CUDA, which only nvcc sees.
#include <levelbench.h>

#ifdef __CUDACC__
template <class T> __global__ void scale(const T* x, T* y, T factor, int64_t size) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < size) y[i] = factor * x[i];
}
#endif

struct TwiceAnywhere {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  template <class T> void forward(const levelbench::Forward& call) const {
    auto x = call.input<T>();
    for (int64_t i = 0; i < x.size(); ++i) call.output<T>()[i] = T(2) * x[i];
  }
  template <class T> void backward(const levelbench::Backward& call) const {
    auto gradient = call.gradient<T>();
    for (int64_t i = 0; i < gradient.size(); ++i) call.input_gradient<T>()[i] = T(2) * gradient[i];
  }
#ifdef __CUDACC__
  template <class T> void launch(const T* x, T* y, int64_t size, void* stream) const {
    if (size) scale<<<(size + 255) / 256, 256, 0, static_cast<cudaStream_t>(stream)>>>(x, y, T(2), size);
    levelbench::require(cudaGetLastError() == cudaSuccess, "the kernel could not be launched");
  }
  template <class T> void forward_cuda(const levelbench::Forward& call) const {
    launch(call.input<T>().data, call.output<T>().data, call.input<T>().size(), call.stream());
  }
  template <class T> void backward_cuda(const levelbench::Backward& call) const {
    launch(call.gradient<T>().data, call.input_gradient<T>().data, call.gradient<T>().size(), call.stream());
  }
#endif
};
LEVELBENCH_OPERATOR(TwiceAnywhere, float, double)
