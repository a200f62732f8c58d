// A CUDA that is not there, for tensors without memory: the accelerator's hooks, its device guard, and the choice of the
// kernel of attention. With it a CPU build of torch dispatches, casts and differentiates as on a GPU. Nothing is computed.
//
// It is loaded after libtorch_cpu and before `import torch`, because torch asks for the hooks once. In a CUDA build of
// torch its hooks win by their priority. Such a build registers a guard and a choice of its own when it is imported, so
// `absent_cuda_begin` is called after that.

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace {

// The described device, and the version of cuDNN that comes with torch's CUDA build.
int major = 0, minor = 0;
long cudnn_version = 0;

const c10::Device kDevice(c10::DeviceType::CUDA, 0);
const c10::Stream kStream(c10::Stream::DEFAULT, kDevice);

// One device and one stream, on which all is complete at once.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const noexcept override { return kStream; }
  c10::Stream getNewStream(c10::Device, int) const override { return kStream; }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return kStream; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};
Guard guard;

// Rules of torch 2.11, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, whose names the functions have. The checks
// that do not ask for the device are torch's own, from the header sdp_utils_cpp.h.
namespace attention {

using sdp::SDPBackend;
using Params = sdp::sdp_params;

bool capability_within(int from, int to) {
  const int here = 10 * major + minor;
  return from <= here && here <= to;
}

bool is_half(const Params& given) {
  return given.query.scalar_type() == at::kHalf || given.query.scalar_type() == at::kBFloat16;
}

bool equal_dtypes(const Params& given) {
  return given.query.dtype() == given.key.dtype() && given.query.dtype() == given.value.dtype();
}

bool check_dtypes_low_precision(const Params& given) {
  const bool known = given.query.scalar_type() == at::kHalf || (major >= 8 && given.query.scalar_type() == at::kBFloat16);
  return known && equal_dtypes(given);
}

bool check_head_dim_size_flash(const Params& given) {
  const auto width = given.query.sym_size(-1);
  return width == given.key.sym_size(-1) && width == given.value.sym_size(-1) && width <= 256;
}

bool check_requires_grad_and_head_dim_gt192(const Params& given) {
  if (!sdp::input_requires_grad(given) || !(capability_within(86, 89) || capability_within(120, 121))) return true;
  const auto width = given.query.sym_size(-1);
  return width <= 192 || (given.dropout == 0.0 && width > 224);
}

bool check_flash_causal_non_square_seqlens(const Params& given) {
  return !given.is_causal || given.query.sym_size(-2) == given.key.sym_size(-2);
}

bool can_use_flash_attention(const Params& given) {
  return sdp::check_runtime_disabled_flash(given, false) && sdp::check_tensor_shapes(given, false) &&
      sdp::check_for_attn_mask(given, false) && check_head_dim_size_flash(given) && capability_within(80, 121) &&
      check_requires_grad_and_head_dim_gt192(given) && check_flash_causal_non_square_seqlens(given) &&
      check_dtypes_low_precision(given) && sdp::check_batch_size_and_num_heads_dense<true>(given, false) &&
      sdp::check_nonzero_sequence_lengths_dense(given, false) &&
      sdp::check_last_dim_stride_equals_1_dense<true>(given, false);
}

int64_t minimum_gemm_alignment(const Params& given) {
  const bool tensor_cores = major >= 8 || (major == 7 && is_half(given));
  const int64_t least = major >= 8 ? 4 : 1;
  return tensor_cores ? std::max<int64_t>(least, 128 / (is_half(given) ? 16 : 32)) : least;
}

bool check_head_dim_size_mem_efficient(const Params& given) {
  const auto width = given.query.sym_size(-1), values = given.value.sym_size(-1);
  const auto alignment = minimum_gemm_alignment(given);
  return width == given.key.sym_size(-1) && width % alignment == 0 && width > 0 && values % alignment == 0 && values > 0;
}

bool check_dtypes_mem_efficient(const Params& given) {
  return (given.query.scalar_type() == at::kFloat && equal_dtypes(given)) || check_dtypes_low_precision(given);
}

bool can_use_mem_efficient_attention(const Params& given) {
  // Grouped queries as they are came with torch 2.14.
  constexpr bool grouped = TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14;
  return sdp::check_runtime_disabled_mem_efficient(given, false) && capability_within(50, 121) &&
      sdp::check_tensor_shapes(given, false) && check_head_dim_size_mem_efficient(given) &&
      sdp::check_nonzero_sequence_lengths_dense(given, false) &&
      sdp::check_last_dim_stride_equals_1_dense<false>(given, false) &&
      sdp::check_batch_size_and_num_heads_dense<grouped>(given, false) && check_dtypes_mem_efficient(given);
}

bool check_cudnn_tensor_shapes(const Params& given) {
  const auto width = given.query.sym_size(3), values = given.value.sym_size(3);
  const int64_t most = cudnn_version >= 91000 && major == 9 && minor == 0 ? 256 : 128;
  if (width > most || values > most || width % 8 != 0 || values % 8 != 0) return false;
  return given.key.sym_size(2) != 1 && (given.dropout == 0.0 || given.query.sym_size(2) != 1);
}

bool check_cudnn_deterministic() {
  const auto& context = at::globalContext();
  return !context.deterministicAlgorithms() || context.deterministicAlgorithmsWarnOnly();
}

bool can_use_cudnn_attention(const Params& given) {
  if (cudnn_version < 90000 || (given.dropout > 0.0 && cudnn_version > 91100 && cudnn_version < 91400)) return false;
  return at::globalContext().userEnabledCuDNNSDP() && sdp::check_tensor_shapes(given, false) &&
      check_cudnn_deterministic() && check_dtypes_low_precision(given) && sdp::check_attn_mask_shape(given, false) &&
      capability_within(80, 121) &&
      sdp::check_nonzero_sequence_lengths_dense(given, false) &&
      sdp::check_last_dim_stride_equals_1_dense<true>(given, false) &&
      sdp::check_batch_size_and_num_heads_dense<true, false>(given, false) && check_cudnn_tensor_shapes(given);
}

// cuDNN comes first on Hopper and datacenter Blackwell, unless the user has set an order.
void check_prefer_cudnn_attention() {
  static bool asked = false;
  const char* refused = std::getenv("TORCH_CUDNN_SDPA_DEPRIORITIZED");
  if (asked || cudnn_version <= 91500 || (major != 9 && major != 10) || (refused && *refused == '1')) return;
  asked = true;
  const std::vector<int64_t> order = {
      int64_t(SDPBackend::cudnn_attention),
      int64_t(SDPBackend::flash_attention),
      int64_t(SDPBackend::efficient_attention),
      int64_t(SDPBackend::math)};
  at::globalContext().setSDPPriorityOrder(order);
}

bool can_use(SDPBackend backend, const Params& given) {
  switch (backend) {
    case SDPBackend::cudnn_attention:
      return can_use_cudnn_attention(given);
    case SDPBackend::flash_attention:
      return can_use_flash_attention(given);
    case SDPBackend::efficient_attention:
      return can_use_mem_efficient_attention(given);
    case SDPBackend::math:
      return at::globalContext().userEnabledMathSDP();
    default:
      return false;
  }
}

int64_t select_sdp_backend(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask,
    double dropout, bool is_causal, std::optional<double>, bool enable_gqa) {
  const Params given{query, key, value, mask, dropout, is_causal, enable_gqa};
  check_prefer_cudnn_attention();
  for (const auto backend : at::globalContext().sDPPriorityOrder()) {
    if (can_use(backend, given)) return int64_t(backend);
  }
  TORCH_CHECK(false, "No available kernel. Aborting execution.");
}

} // namespace attention
} // namespace

namespace at {

// The hooks are registered under the name that torch asks for, and torch makes them.
struct AbsentCUDAHooks final : CUDAHooksInterface {
  explicit AbsentCUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCuDNN() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool hasCuBLASLt() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  long versionCuDNN() const override { return cudnn_version; }
  long versionRuntimeCuDNN() const override { return cudnn_version; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  int getNumGPUs() const override { return 1; }
};
C10_REGISTER_TYPED_CLASS_WITH_PRIORITY(CUDAHooksRegistry, "CUDAHooks", c10::REGISTRY_PREFERRED, AbsentCUDAHooks)

} // namespace at

// Take the place of a GPU of this capability, after torch has been imported.
extern "C" void absent_cuda_begin(int given_major, int given_minor, long given_cudnn) {
  major = given_major;
  minor = given_minor;
  cudnn_version = given_cudnn;
  static c10::impl::DeviceGuardImplRegistrar registered(c10::DeviceType::CUDA, &guard);
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&attention::select_sdp_backend);
}
