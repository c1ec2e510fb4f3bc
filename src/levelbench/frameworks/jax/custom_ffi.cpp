// Calls a compiled operator from XLA's foreign function interface, on the buffers that XLA has allocated.
//
// One handler serves all operators: which one is meant comes as attributes, as the addresses of its C functions.

#define LEVELBENCH_TYPES_ONLY
#include <levelbench.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using levelbench::DLTensor;

namespace {

using Function = int32_t (*)(void*, const levelbench::RawCall*);

levelbench::DLDataType type_of(ffi::DataType type) {
  using namespace levelbench;
  switch (type) {
    case ffi::DataType::PRED: return {kDLBool, 8, 1};
    case ffi::DataType::S8: return {kDLInt, 8, 1};
    case ffi::DataType::S16: return {kDLInt, 16, 1};
    case ffi::DataType::S32: return {kDLInt, 32, 1};
    case ffi::DataType::S64: return {kDLInt, 64, 1};
    case ffi::DataType::U8: return {kDLUInt, 8, 1};
    case ffi::DataType::U16: return {kDLUInt, 16, 1};
    case ffi::DataType::U32: return {kDLUInt, 32, 1};
    case ffi::DataType::U64: return {kDLUInt, 64, 1};
    case ffi::DataType::F16: return {kDLFloat, 16, 1};
    case ffi::DataType::F32: return {kDLFloat, 32, 1};
    case ffi::DataType::F64: return {kDLFloat, 64, 1};
    case ffi::DataType::BF16: return {kDLBfloat, 16, 1};
    case ffi::DataType::C64: return {kDLComplex, 64, 1};
    case ffi::DataType::C128: return {kDLComplex, 128, 1};
    default: throw std::invalid_argument("a C++ operator cannot take this type of XLA's");
  }
}

DLTensor absent() {
  DLTensor it{};
  it.ndim = -1;
  return it;
}

DLTensor tensor(ffi::AnyBuffer buffer) {
  const auto shape = buffer.dimensions();
  DLTensor it{};
  it.data = buffer.untyped_data();
  it.device = {levelbench::kDLCPU, 0};
  it.ndim = static_cast<int32_t>(shape.size());
  it.dtype = type_of(buffer.element_type());
  it.shape = const_cast<int64_t*>(shape.begin());
  return it;
}

// Where `mask` has a bit, the next buffer that `next` answers with.
template <class Next> std::vector<DLTensor> masked(int64_t count, int64_t mask, Next next) {
  std::vector<DLTensor> found;
  for (int64_t i = 0; i < count; ++i) found.push_back((mask >> i) & 1 ? tensor(next()) : absent());
  return found;
}

ffi::Error call(ffi::RemainingArgs arguments, ffi::RemainingRets results, int64_t function, int64_t instance,
                std::string_view title, int64_t backward, int64_t inputs, int64_t outputs, int64_t wanted, int64_t graded, int64_t scratch) {
  char message[2048] = "";
  try {
    size_t read = 0, written = 0;
    const auto argument = [&] { return arguments.get<ffi::AnyBuffer>(read++).value(); };
    const auto result = [&] { return *results.get<ffi::AnyBuffer>(written++).value(); };
    const int64_t all = -1;
    auto given = masked(inputs, all, argument);
    auto found = backward ? masked(outputs, all, argument) : masked(outputs, all, result);
    auto slopes = masked(backward ? outputs : 0, graded, argument);
    auto answers = masked(backward ? inputs : 0, wanted, [&] {
      const ffi::AnyBuffer buffer = result();
      std::memset(buffer.untyped_data(), 0, buffer.size_bytes());
      return buffer;
    });
    const std::unique_ptr<void, decltype(&std::free)> workspace(
        scratch ? std::aligned_alloc(64, static_cast<size_t>((scratch + 63) / 64 * 64)) : nullptr, &std::free);
    levelbench::RawCall raw{};
    raw.inputs = given.data();
    raw.outputs = found.data();
    raw.gradients = slopes.data();
    raw.input_gradients = answers.data();
    raw.input_count = static_cast<int32_t>(inputs);
    raw.output_count = static_cast<int32_t>(outputs);
    raw.workspace = workspace.get();
    raw.workspace_bytes = scratch;
    raw.message = message;
    raw.message_size = sizeof message;
    if (scratch && !workspace) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "no memory for the workspace");
    const int32_t status = reinterpret_cast<Function>(function)(reinterpret_cast<void*>(instance), &raw);
    if (status == 0) return ffi::Error::Success();
    const auto code = status == 2   ? ffi::ErrorCode::kUnimplemented
                      : status == 3 ? ffi::ErrorCode::kFailedPrecondition
                                    : ffi::ErrorCode::kInvalidArgument;
    return ffi::Error(code, std::string(title) + ": " + message);
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, std::string(title) + ": " + error.what());
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* levelbench_xla(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .RemainingArgs()
                             .RemainingRets()
                             .Attr<int64_t>("function")
                             .Attr<int64_t>("instance")
                             .Attr<std::string_view>("title")
                             .Attr<int64_t>("backward")
                             .Attr<int64_t>("inputs")
                             .Attr<int64_t>("outputs")
                             .Attr<int64_t>("wanted")
                             .Attr<int64_t>("graded")
                             .Attr<int64_t>("scratch")
                             .To(call)
                             .release();
  return handler->Call(frame);
}
