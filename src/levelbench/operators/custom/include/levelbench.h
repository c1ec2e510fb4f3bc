// levelbench.h: a custom operator in one C++ source file, callable from NumPy, PyTorch and JAX.
//
// An operator is a struct with these members (only `inputs`, `outputs` and `forward` are required):
//
//   struct Scale {
//     static constexpr auto inputs = "x";               // names, separated by commas
//     static constexpr auto outputs = "y";
//     static constexpr auto examples = "4x8; 0x3; 1";   // shapes to check with: cases by ";", inputs by ","
//     static constexpr int typed_by = 0;                // the input whose dtype is T
//     double factor;
//     explicit Scale(levelbench::Attributes& a) : factor(a.get("factor", 2.0)) {}
//     std::vector<Spec> infer(const std::vector<Spec>& inputs) const;   // default: each output is like input 0
//     template <class T> void forward(const levelbench::Forward& call) const;
//     template <class T> void backward(const levelbench::Backward& call) const;
//     template <class T> void forward_cuda(const levelbench::Forward& call) const;    // within #ifdef __CUDACC__
//     template <class T> void backward_cuda(const levelbench::Backward& call) const;  // launch on call.stream()
//     int64_t workspace(const std::vector<Spec>& inputs) const;            // bytes of scratch, for forward
//     int64_t backward_workspace(const std::vector<Spec>& inputs) const;   // and for backward
//     levelbench::Cost cost(const std::vector<Spec>& inputs) const;        // 2 operations a multiply-add; bytes
//   };
//   LEVELBENCH_OPERATOR(Scale, float, double)           // the types that T stands for
//
// Every array is row-major and contiguous. Inputs are read only; outputs come unwritten; gradients of inputs come
// as zeros, so they can be added to. Members are const: an operator keeps nothing between calls. Whatever is thrown
// is caught, and its what() is shown.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace levelbench {

// ---------------------------------------------------------------------------------------------------------------------
// The tensor of DLPack (https://github.com/dmlc/dlpack), with the same layout in memory.
// Copyright 2017 by Contributors, licensed under the Apache License, Version 2.0:
// https://www.apache.org/licenses/LICENSE-2.0. Reduced to what is used here.

enum DLDeviceType : int32_t { kDLCPU = 1, kDLCUDA = 2 };
enum DLDataTypeCode : uint8_t { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 };
struct DLDevice { int32_t device_type; int32_t device_id; };
struct DLDataType { uint8_t code; uint8_t bits; uint16_t lanes; };
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

inline bool operator==(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}
inline bool operator!=(DLDataType a, DLDataType b) { return !(a == b); }

// ---------------------------------------------------------------------------------------------------------------------
// Element types.

#ifdef __CUDACC__
#define LEVELBENCH_ANYWHERE __host__ __device__
#else
#define LEVELBENCH_ANYWHERE
#endif

// bfloat16 as it is stored; arithmetic is in float, and the result is rounded to nearest, ties to even.
struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  LEVELBENCH_ANYWHERE bfloat16(float value) {
    uint32_t wide;
    memcpy(&wide, &value, 4);
    bits = (wide & 0x7fffffffu) > 0x7f800000u ? static_cast<uint16_t>((wide >> 16) | 0x40u)
                                              : static_cast<uint16_t>((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
  }
  LEVELBENCH_ANYWHERE operator float() const {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
  }
};

// float16 as it is stored; arithmetic is in float, and the result is rounded to nearest, ties to even.
struct float16 {
  uint16_t bits;
  float16() = default;
  LEVELBENCH_ANYWHERE float16(float value) {
    uint32_t wide;
    memcpy(&wide, &value, 4);
    const uint32_t sign = (wide >> 16) & 0x8000u, size = wide & 0x7fffffffu;
    uint32_t half;
    if (size > 0x7f800000u) {
      half = 0x7e00u;
    } else if (size >= 0x477ff000u) {
      half = 0x7c00u;
    } else if (size < 0x38800000u) {
      // Below the normal numbers: the last bit of the sum with 0.5 is that of the smallest float16.
      float sum;
      memcpy(&sum, &size, 4);
      sum += 0.5f;
      memcpy(&half, &sum, 4);
      half -= 0x3f000000u;
    } else {
      half = (size + 0xc8000fffu + ((size >> 13) & 1u)) >> 13;
    }
    bits = static_cast<uint16_t>(sign | half);
  }
  LEVELBENCH_ANYWHERE operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * (static_cast<float>(fraction) / 16777216.0f);
    const uint32_t wide = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112u) << 23) | (fraction << 13);
    float value;
    memcpy(&value, &wide, 4);
    return value;
  }
};

// x += y and so on: in float, then rounded.
#define LEVELBENCH_ASSIGN(T, OP) \
  LEVELBENCH_ANYWHERE inline T& operator OP##=(T& x, float y) { return x = T(static_cast<float>(x) OP y); }
#define LEVELBENCH_ASSIGNS(T) \
  LEVELBENCH_ASSIGN(T, +) LEVELBENCH_ASSIGN(T, -) LEVELBENCH_ASSIGN(T, *) LEVELBENCH_ASSIGN(T, /)
LEVELBENCH_ASSIGNS(bfloat16)
LEVELBENCH_ASSIGNS(float16)
#undef LEVELBENCH_ASSIGNS
#undef LEVELBENCH_ASSIGN

template <class T> struct TypeOf;
#define LEVELBENCH_TYPE(T, C, B, N) \
  template <> struct TypeOf<T> { static constexpr DLDataType value{C, B, 1}; static constexpr const char* name = N; };
LEVELBENCH_TYPE(float, kDLFloat, 32, "float32")
LEVELBENCH_TYPE(double, kDLFloat, 64, "float64")
LEVELBENCH_TYPE(float16, kDLFloat, 16, "float16")
LEVELBENCH_TYPE(bfloat16, kDLBfloat, 16, "bfloat16")
LEVELBENCH_TYPE(bool, kDLBool, 8, "bool")
LEVELBENCH_TYPE(int8_t, kDLInt, 8, "int8")
LEVELBENCH_TYPE(int16_t, kDLInt, 16, "int16")
LEVELBENCH_TYPE(int32_t, kDLInt, 32, "int32")
LEVELBENCH_TYPE(int64_t, kDLInt, 64, "int64")
LEVELBENCH_TYPE(uint8_t, kDLUInt, 8, "uint8")
LEVELBENCH_TYPE(uint16_t, kDLUInt, 16, "uint16")
LEVELBENCH_TYPE(uint32_t, kDLUInt, 32, "uint32")
LEVELBENCH_TYPE(uint64_t, kDLUInt, 64, "uint64")
#undef LEVELBENCH_TYPE

// ---------------------------------------------------------------------------------------------------------------------
// What an operator is given.

using Shape = std::vector<int64_t>;

struct Spec {
  Shape shape;
  DLDataType dtype;
  int64_t size() const {
    int64_t n = 1;
    for (int64_t each : shape) n *= each;
    return n;
  }
};

struct Cost {
  double flops;
  double bytes;
};

// Throws std::invalid_argument with the message unless the condition holds.
inline void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

// The elements of a contiguous array in row-major order, and its shape; a negative axis counts from the end.
template <class T> struct Tensor {
  T* data;
  const int64_t* dims;
  int32_t rank;
  int64_t count;
  LEVELBENCH_ANYWHERE T& operator[](int64_t at) const { return data[at]; }
  int64_t size() const { return count; }
  T* begin() const { return data; }
  T* end() const { return data + count; }
  int64_t shape(int axis) const {
    const int at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank) {
      throw std::out_of_range("axis " + std::to_string(axis) + " of an array of rank " + std::to_string(rank));
    }
    return dims[at];
  }
  // The number of rows if the last axis is the row: size() / shape(-1), and 0 where that is 0 / 0.
  int64_t rows() const { return count == 0 ? 0 : count / shape(-1); }
};

// An input of another type than the operator asks for.
struct WrongType : std::invalid_argument {
  WrongType(int at, const std::string& message) : std::invalid_argument(message), input(at) {}
  int input;
};

// One call, as C sees it. An absent gradient has ndim -1.
struct RawCall {
  DLTensor* inputs;
  DLTensor* outputs;
  DLTensor* gradients;
  DLTensor* input_gradients;
  int32_t input_count;
  int32_t output_count;
  void* workspace;
  int64_t workspace_bytes;
  void* stream;
  char* message;
  int64_t message_size;
};

class Call {
 public:
  explicit Call(const RawCall& raw) : raw_(raw) {}
  template <class T> Tensor<const T> input(int at = 0) const {
    return view<const T>(raw_.inputs, at, raw_.input_count, "input", raw_.inputs);
  }
  // Scratch of as many bytes as the operator asked for, aligned to 64 bytes; what is in it is left over.
  template <class T> T* workspace() const { return static_cast<T*>(raw_.workspace); }
  int64_t workspace_bytes() const { return raw_.workspace_bytes; }
  void* stream() const { return raw_.stream; }

 protected:
  template <class T> static Tensor<T> view(const DLTensor* tensors, int at, int count, const char* kind,
                                           const DLTensor* inputs = nullptr) {
    const std::string name = std::string(kind) + " " + std::to_string(at);
    if (at < 0 || at >= count) throw std::out_of_range("there is no " + name);
    const DLTensor& it = tensors[at];
    if (it.ndim < 0) throw std::invalid_argument(name + " has no gradient: ask wants() or has_gradient() first");
    if (it.dtype != TypeOf<std::remove_const_t<T>>::value) {
      const std::string message = name + " is not of type " + TypeOf<std::remove_const_t<T>>::name;
      if (tensors == inputs) throw WrongType(at, message);
      throw std::invalid_argument(message);
    }
    int64_t size = 1;
    for (int32_t axis = 0; axis < it.ndim; ++axis) size *= it.shape[axis];
    return {reinterpret_cast<T*>(static_cast<char*>(it.data) + it.byte_offset), it.shape, it.ndim, size};
  }
  const RawCall& raw_;
};

class Forward : public Call {
 public:
  using Call::Call;
  template <class T> Tensor<T> output(int at = 0) const {
    return view<T>(raw_.outputs, at, raw_.output_count, "output");
  }
};

class Backward : public Call {
 public:
  using Call::Call;
  template <class T> Tensor<const T> output(int at = 0) const {
    return view<const T>(raw_.outputs, at, raw_.output_count, "output");
  }
  // The gradient of an output, if it has one: floating-point outputs do.
  bool has_gradient(int at = 0) const { return at >= 0 && at < raw_.output_count && raw_.gradients[at].ndim >= 0; }
  template <class T> Tensor<const T> gradient(int at = 0) const {
    return view<const T>(raw_.gradients, at, raw_.output_count, "output");
  }
  // The gradient of an input, to be written, if it is to have one: floating-point inputs are.
  bool wants(int at) const { return at >= 0 && at < raw_.input_count && raw_.input_gradients[at].ndim >= 0; }
  template <class T> Tensor<T> input_gradient(int at = 0) const {
    return view<T>(raw_.input_gradients, at, raw_.input_count, "input");
  }
};

// One attribute, as C sees it: `kind` is 'i', 'f' or 's', in upper case for a list.
struct RawAttribute {
  const char* name;
  int32_t kind;
  int64_t length;
  const int64_t* ints;
  const double* floats;
  const char* const* texts;
};

// The attributes of a node. Each `get` names one and gives its default, which also says its type.
class Attributes {
 public:
  Attributes() = default;
  Attributes(const RawAttribute* given, int32_t count) : given_(given), count_(count) {}

  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0> int64_t get(const char* name, T fallback) {
    note(name, "i", {std::to_string(static_cast<int64_t>(fallback))});
    const RawAttribute* it = find(name, 'i');
    return it ? it->ints[0] : static_cast<int64_t>(fallback);
  }
  template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0> double get(const char* name, T fallback) {
    note(name, "f", {number(fallback)});
    const RawAttribute* it = find(name, 'f');
    return it ? it->floats[0] : static_cast<double>(fallback);
  }
  std::string get(const char* name, const char* fallback) {
    note(name, "s", {quoted(fallback)});
    const RawAttribute* it = find(name, 's');
    return it ? it->texts[0] : fallback;
  }
  std::vector<int64_t> get(const char* name, const std::vector<int64_t>& fallback) {
    std::vector<std::string> items;
    for (int64_t each : fallback) items.push_back(std::to_string(each));
    note(name, "I", items);
    const RawAttribute* it = find(name, 'I');
    return it ? std::vector<int64_t>(it->ints, it->ints + it->length) : fallback;
  }
  std::vector<double> get(const char* name, const std::vector<double>& fallback) {
    std::vector<std::string> items;
    for (double each : fallback) items.push_back(number(each));
    note(name, "F", items);
    const RawAttribute* it = find(name, 'F');
    return it ? std::vector<double>(it->floats, it->floats + it->length) : fallback;
  }
  std::vector<std::string> get(const char* name, const std::vector<std::string>& fallback) {
    std::vector<std::string> items;
    for (const std::string& each : fallback) items.push_back(quoted(each));
    note(name, "S", items);
    const RawAttribute* it = find(name, 'S');
    return it ? std::vector<std::string>(it->texts, it->texts + it->length) : fallback;
  }

  // What was asked for, as JSON: [[name, kind, [default, ...]], ...].
  const std::string& asked() const { return asked_; }

  static std::string quoted(const std::string& text) {
    std::string json = "\"";
    for (char each : text) {
      char escaped[8];
      if (each == '"' || each == '\\' || static_cast<unsigned char>(each) < 0x20) {
        std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned char>(each));
        json += escaped;
      } else {
        json += each;
      }
    }
    return json + "\"";
  }

 private:
  static std::string number(double value) {
    if (value != value) return "NaN";
    if (value == std::numeric_limits<double>::infinity()) return "Infinity";
    if (value == -std::numeric_limits<double>::infinity()) return "-Infinity";
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    return text;
  }
  void note(const char* name, const char* kind, const std::vector<std::string>& items) {
    asked_ += (asked_.empty() ? "[" : ", [") + quoted(name) + ", \"" + kind + "\", [";
    for (size_t i = 0; i < items.size(); ++i) asked_ += (i ? ", " : "") + items[i];
    asked_ += "]]";
  }
  const RawAttribute* find(const char* name, int32_t kind) const {
    for (int32_t i = 0; i < count_; ++i) {
      if (std::strcmp(given_[i].name, name) != 0) continue;
      require(given_[i].kind == kind || given_[i].length == 0, std::string(name) + " is of another type");
      return &given_[i];
    }
    return nullptr;
  }
  const RawAttribute* given_ = nullptr;
  int32_t count_ = 0;
  std::string asked_;
};

// ---------------------------------------------------------------------------------------------------------------------
// From the struct to plain C functions. Nothing below is for an operator's author.

namespace detail {

enum Status : int32_t { kDone = 0, kThrown = 1, kUnsupported = 2, kMixedTypes = 3 };

struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The caller's inputs have types that do not go together.
struct MixedTypes : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class F> int32_t guarded(char* message, int64_t size, F&& body) noexcept {
  try {
    body();
    return kDone;
  } catch (const Unsupported& error) {
    if (message) std::snprintf(message, static_cast<size_t>(size), "%s", error.what());
    return kUnsupported;
  } catch (const MixedTypes& error) {
    if (message) std::snprintf(message, static_cast<size_t>(size), "%s", error.what());
    return kMixedTypes;
  } catch (const std::exception& error) {
    if (message) std::snprintf(message, static_cast<size_t>(size), "%s", error.what());
  } catch (...) {
    if (message) std::snprintf(message, static_cast<size_t>(size), "it threw something that is no std::exception");
  }
  return kThrown;
}

// Whether a member is there, by expressions that compile only if it is.
#define LEVELBENCH_HAS(NAME, ...) \
  template <class Op, class T, class = void> struct Has_##NAME : std::false_type {}; \
  template <class Op, class T> struct Has_##NAME<Op, T, std::void_t<decltype(__VA_ARGS__)>> : std::true_type {};
using Specs = std::vector<Spec>;
LEVELBENCH_HAS(forward, std::declval<const Op&>().template forward<T>(std::declval<const Forward&>()))
LEVELBENCH_HAS(backward, std::declval<const Op&>().template backward<T>(std::declval<const Backward&>()))
LEVELBENCH_HAS(forward_cuda, std::declval<const Op&>().template forward_cuda<T>(std::declval<const Forward&>()))
LEVELBENCH_HAS(backward_cuda, std::declval<const Op&>().template backward_cuda<T>(std::declval<const Backward&>()))
LEVELBENCH_HAS(named_backward, &Op::template backward<T>)
LEVELBENCH_HAS(named_forward_cuda, &Op::template forward_cuda<T>)
LEVELBENCH_HAS(named_backward_cuda, &Op::template backward_cuda<T>)
LEVELBENCH_HAS(named_infer, &Op::infer)
LEVELBENCH_HAS(named_cost, &Op::cost)
LEVELBENCH_HAS(named_workspace, &Op::workspace)
LEVELBENCH_HAS(named_backward_workspace, &Op::backward_workspace)
LEVELBENCH_HAS(infer, std::declval<const Op&>().infer(std::declval<const Specs&>()))
LEVELBENCH_HAS(cost, std::declval<const Op&>().cost(std::declval<const Specs&>()))
LEVELBENCH_HAS(workspace, std::declval<const Op&>().workspace(std::declval<const Specs&>()))
LEVELBENCH_HAS(backward_workspace, std::declval<const Op&>().backward_workspace(std::declval<const Specs&>()))
LEVELBENCH_HAS(examples, Op::examples)
LEVELBENCH_HAS(typed_by, Op::typed_by)
#undef LEVELBENCH_HAS

inline size_t names(const char* text) {
  size_t count = 1;
  for (; *text; ++text) count += *text == ',';
  return count;
}

inline const char* last_name(const char* name) {
  for (const char* at = name; *at; ++at) {
    if (at[0] == ':' && at[1] == ':') name = at + 2;
  }
  return name;
}

struct Entry {
  std::string description;
  void* (*create)(Attributes&);
  void (*run)(const void*, const RawCall&, bool backward);
  Specs (*infer)(const void*, const Specs&);
  int64_t (*workspace)(const void*, const Specs&, bool backward);
  bool (*cost)(const void*, const Specs&, Cost&);
};

template <class Op> Op* make(Attributes& attributes) {
  if constexpr (std::is_constructible_v<Op, Attributes&>) {
    return new Op(attributes);
  } else {
    static_assert(std::is_default_constructible_v<Op>, "an operator is made of levelbench::Attributes&, or of nothing");
    return new Op();
  }
}

template <class Op> constexpr int typed_by() {
  if constexpr (Has_typed_by<Op, void>::value) return Op::typed_by;
  return 0;
}

template <class Op, class T> void run_typed(const Op& op, const RawCall& raw, bool backward) {
  const bool cuda = raw.inputs[0].device.device_type == kDLCUDA;
  if (cuda && backward) {
    if constexpr (Has_backward_cuda<Op, T>::value) return op.template backward_cuda<T>(Backward(raw));
  } else if (cuda) {
    if constexpr (Has_forward_cuda<Op, T>::value) return op.template forward_cuda<T>(Forward(raw));
  } else if (backward) {
    if constexpr (Has_backward<Op, T>::value) return op.template backward<T>(Backward(raw));
  } else {
    return op.template forward<T>(Forward(raw));
  }
  throw Unsupported(cuda ? "it has no such function for CUDA" : "it has no backward");
}

template <class Op, class T> bool run_if(const Op& op, const RawCall& raw, bool backward) {
  static_assert(Has_forward<Op, T>::value,
                "write: template <class T> void forward(const levelbench::Forward& call) const");
  static_assert(Has_backward<Op, T>::value || !Has_named_backward<Op, T>::value,
                "write: template <class T> void backward(const levelbench::Backward& call) const");
  static_assert(Has_forward_cuda<Op, T>::value || !Has_named_forward_cuda<Op, T>::value,
                "write: template <class T> void forward_cuda(const levelbench::Forward& call) const");
  static_assert(Has_backward_cuda<Op, T>::value || !Has_named_backward_cuda<Op, T>::value,
                "write: template <class T> void backward_cuda(const levelbench::Backward& call) const");
  if (raw.inputs[typed_by<Op>()].dtype != TypeOf<T>::value) return false;
  run_typed<Op, T>(op, raw, backward);
  return true;
}

template <class... Ts> std::string types() {
  std::string json;
  ((json += (json.empty() ? "\"" : ", \"") + std::string(TypeOf<Ts>::name) + "\""), ...);
  return json;
}

template <class Op, class... Ts> std::string describe(const char* name) {
  Attributes attributes;
  std::string wrong;
  try {
    delete make<Op>(attributes);
  } catch (const std::exception& error) {
    wrong = error.what();
  } catch (...) {
    wrong = "it throws something that is no std::exception";
  }
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  std::string json = "{\"name\": " + Attributes::quoted(name) + ", \"inputs\": " + Attributes::quoted(Op::inputs) +
                     ", \"outputs\": " + Attributes::quoted(Op::outputs) + ", \"types\": [" + types<Ts...>() +
                     "], \"attributes\": [" + attributes.asked() + "], \"wrong\": " + Attributes::quoted(wrong) +
                     ", \"typed_by\": " + std::to_string(typed_by<Op>());
  if constexpr (Has_examples<Op, void>::value) json += ", \"examples\": " + Attributes::quoted(Op::examples);
  json += std::string(", \"backward\": ") + flag((Has_backward<Op, Ts>::value || ...));
  json += std::string(", \"cuda\": ") + flag((Has_forward_cuda<Op, Ts>::value || ...));
  return json + "}";
}

template <class Op, class... Ts> Entry entry(const char* name) {
  static_assert(Has_infer<Op, void>::value || !Has_named_infer<Op, void>::value,
                "write: std::vector<levelbench::Spec> infer(const std::vector<levelbench::Spec>& inputs) const");
  static_assert(Has_cost<Op, void>::value || !Has_named_cost<Op, void>::value,
                "write: levelbench::Cost cost(const std::vector<levelbench::Spec>& inputs) const");
  static_assert(Has_workspace<Op, void>::value || !Has_named_workspace<Op, void>::value,
                "write: int64_t workspace(const std::vector<levelbench::Spec>& inputs) const");
  static_assert(Has_backward_workspace<Op, void>::value || !Has_named_backward_workspace<Op, void>::value,
                "write: int64_t backward_workspace(const std::vector<levelbench::Spec>& inputs) const");
  Entry it{};
  it.description = describe<Op, Ts...>(name);
  it.create = [](Attributes& attributes) -> void* { return make<Op>(attributes); };
  it.run = [](const void* op, const RawCall& raw, bool backward) {
    try {
      if ((run_if<Op, Ts>(*static_cast<const Op*>(op), raw, backward) || ...)) return;
    } catch (const WrongType& error) {
      // T is the type of the input `typed_by`: if another one does not go with it, the caller chose it.
      if (error.input != typed_by<Op>()) throw MixedTypes(error.what());
      throw;
    }
    throw Unsupported("it is not written for this type, but for " + types<Ts...>());
  };
  it.infer = [](const void* op, const Specs& inputs) -> Specs {
    if constexpr (Has_infer<Op, void>::value) return static_cast<const Op*>(op)->infer(inputs);
    return Specs(names(Op::outputs), inputs.at(0));
  };
  it.workspace = [](const void* op, const Specs& inputs, bool backward) -> int64_t {
    if constexpr (Has_backward_workspace<Op, void>::value) {
      if (backward) return static_cast<const Op*>(op)->backward_workspace(inputs);
    }
    if constexpr (Has_workspace<Op, void>::value) {
      if (!backward) return static_cast<const Op*>(op)->workspace(inputs);
    }
    return 0;
  };
  it.cost = [](const void* op, const Specs& inputs, Cost& found) {
    if constexpr (Has_cost<Op, void>::value) found = static_cast<const Op*>(op)->cost(inputs);
    return Has_cost<Op, void>::value;
  };
  return it;
}

// One list a library: this header is included by one source file.
static std::vector<Entry>& entries() {
  static std::vector<Entry> all;
  return all;
}

template <class Op, class... Ts> bool add(const char* name) {
  entries().push_back(entry<Op, Ts...>(name));
  return true;
}

struct Instance {
  const Entry* entry;
  void* op;
};

inline Specs specs_of(const DLTensor* tensors, int32_t count) {
  Specs specs;
  for (int32_t i = 0; i < count; ++i) {
    specs.push_back({std::vector<int64_t>(tensors[i].shape, tensors[i].shape + tensors[i].ndim), tensors[i].dtype});
  }
  return specs;
}

}  // namespace detail
}  // namespace levelbench

#define LEVELBENCH_JOINED(A, B) A##B
#define LEVELBENCH_JOIN(A, B) LEVELBENCH_JOINED(A, B)
// The name of an operator in a namespace is what comes after the last "::".
#define LEVELBENCH_OPERATOR(Op, ...) \
  [[maybe_unused]] static const bool LEVELBENCH_JOIN(levelbench_added_, __COUNTER__) = \
      ::levelbench::detail::add<Op, __VA_ARGS__>(::levelbench::detail::last_name(#Op));

// ---------------------------------------------------------------------------------------------------------------------
// The plain C functions of a compiled operator file.
// A file that wants the types alone defines LEVELBENCH_TYPES_ONLY first.

#ifndef LEVELBENCH_TYPES_ONLY

#define LEVELBENCH_API extern "C" __attribute__((visibility("default")))

LEVELBENCH_API int32_t levelbench_abi() { return 1; }

LEVELBENCH_API int32_t levelbench_count() { return static_cast<int32_t>(levelbench::detail::entries().size()); }

LEVELBENCH_API const char* levelbench_describe(int32_t at) {
  return levelbench::detail::entries().at(static_cast<size_t>(at)).description.c_str();
}

// An operator with these attributes; it lives as long as the process. Null where its constructor throws.
LEVELBENCH_API void* levelbench_create(int32_t at, const levelbench::RawAttribute* given, int32_t count, char* message,
                                       int64_t size) {
  void* made = nullptr;
  levelbench::detail::guarded(message, size, [&] {
    const auto& entry = levelbench::detail::entries().at(static_cast<size_t>(at));
    levelbench::Attributes attributes(given, count);
    made = new levelbench::detail::Instance{&entry, entry.create(attributes)};
  });
  return made;
}

// Writes `output_count` specs: `ranks`, then `shapes` one after the other (room for `room` numbers), and `dtypes`.
LEVELBENCH_API int32_t levelbench_infer(void* made, const levelbench::RawCall* call, int32_t* ranks, int64_t* shapes,
                                        int64_t room, levelbench::DLDataType* dtypes) {
  return levelbench::detail::guarded(call->message, call->message_size, [&] {
    const auto* it = static_cast<levelbench::detail::Instance*>(made);
    const auto inputs = levelbench::detail::specs_of(call->inputs, call->input_count);
    const auto found = it->entry->infer(it->op, inputs);
    levelbench::require(found.size() == static_cast<size_t>(call->output_count), "infer gives too many or few specs");
    int64_t used = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      ranks[i] = static_cast<int32_t>(found[i].shape.size());
      dtypes[i] = found[i].dtype;
      levelbench::require(used + ranks[i] <= room, "infer gives more dimensions than there is room for");
      for (int64_t each : found[i].shape) {
        levelbench::require(each >= 0, "infer gives a negative dimension");
        shapes[used++] = each;
      }
    }
  });
}

LEVELBENCH_API int32_t levelbench_workspace(void* made, const levelbench::RawCall* call, int32_t backward,
                                            int64_t* bytes) {
  return levelbench::detail::guarded(call->message, call->message_size, [&] {
    const auto* it = static_cast<levelbench::detail::Instance*>(made);
    const auto inputs = levelbench::detail::specs_of(call->inputs, call->input_count);
    *bytes = it->entry->workspace(it->op, inputs, backward != 0);
    levelbench::require(*bytes >= 0, "the workspace has a negative size");
  });
}

// Writes operations and bytes; `*said` is 0 where the operator does not say them.
LEVELBENCH_API int32_t levelbench_cost(void* made, const levelbench::RawCall* call, double* flops, double* bytes,
                                       int32_t* said) {
  return levelbench::detail::guarded(call->message, call->message_size, [&] {
    const auto* it = static_cast<levelbench::detail::Instance*>(made);
    levelbench::Cost cost{};
    *said = it->entry->cost(it->op, levelbench::detail::specs_of(call->inputs, call->input_count), cost);
    *flops = cost.flops;
    *bytes = cost.bytes;
  });
}

LEVELBENCH_API int32_t levelbench_forward(void* made, const levelbench::RawCall* call) {
  const auto* it = static_cast<levelbench::detail::Instance*>(made);
  return levelbench::detail::guarded(call->message, call->message_size, [&] { it->entry->run(it->op, *call, false); });
}

LEVELBENCH_API int32_t levelbench_backward(void* made, const levelbench::RawCall* call) {
  const auto* it = static_cast<levelbench::detail::Instance*>(made);
  return levelbench::detail::guarded(call->message, call->message_size, [&] { it->entry->run(it->op, *call, true); });
}

#endif  // LEVELBENCH_TYPES_ONLY
