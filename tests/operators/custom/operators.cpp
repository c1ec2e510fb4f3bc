// Operators that the tests compile: one for each thing that an operator in C++ can do or do wrong.
#include <cmath>
#include <levelbench.h>
#include <numeric>
#include <string>

using levelbench::Backward;
using levelbench::Forward;
using levelbench::require;
using levelbench::Spec;

// Two outputs, and a backward that reads both gradients.
struct SumProduct {
  static constexpr auto inputs = "a, b";
  static constexpr auto outputs = "sum, product";
  static constexpr auto examples = "3x4, 3x4; -, -; 0x2, 0x2";
  std::vector<Spec> infer(const std::vector<Spec>& inputs) const {
    require(inputs[0].shape == inputs[1].shape, "a and b must be of one shape");
    return {inputs[0], inputs[0]};
  }
  template <class T> void forward(const Forward& call) const {
    auto a = call.input<T>(0), b = call.input<T>(1);
    auto sum = call.output<T>(0), product = call.output<T>(1);
    for (int64_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i], product[i] = a[i] * b[i];
  }
  template <class T> void backward(const Backward& call) const {
    auto a = call.input<T>(0), b = call.input<T>(1), dsum = call.gradient<T>(0), dproduct = call.gradient<T>(1);
    auto da = call.input_gradient<T>(0), db = call.input_gradient<T>(1);
    for (int64_t i = 0; i < a.size(); ++i) da[i] = dsum[i] + dproduct[i] * b[i], db[i] = dsum[i] + dproduct[i] * a[i];
  }
};
LEVELBENCH_OPERATOR(SumProduct, float, double)

// Attributes of every kind.
struct Scale {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  double factor;
  int64_t power;
  std::string mode;
  std::vector<int64_t> axes;
  std::vector<double> taps;
  std::vector<std::string> names;
  explicit Scale(levelbench::Attributes& a)
      : factor(a.get("factor", 2.0)), power(a.get("power", 1)), mode(a.get("mode", "plain \"quoted\"")),
        axes(a.get("axes", std::vector<int64_t>{0, 1})), taps(a.get("taps", std::vector<double>{0.5})),
        names(a.get("names", std::vector<std::string>{"one", "two"})) {
    require(power >= 0, "power must not be negative");
  }
  template <class T> void forward(const Forward& call) const {
    auto x = call.input<T>();
    auto y = call.output<T>();
    double extra = std::accumulate(axes.begin(), axes.end(), 0.0) + std::accumulate(taps.begin(), taps.end(), 0.0);
    for (const std::string& each : names) extra += each.size();
    if (mode == "bare") extra = 0;
    for (int64_t i = 0; i < x.size(); ++i) y[i] = T(factor * std::pow(x[i], power) + extra);
  }
};
LEVELBENCH_OPERATOR(Scale, float, double)

// Sums of rows, accumulated in a workspace of double; another shape comes out than goes in.
struct RowSum {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  static int64_t rows(const std::vector<Spec>& inputs) { return inputs[0].shape.at(0); }
  std::vector<Spec> infer(const std::vector<Spec>& inputs) const {
    require(inputs[0].shape.size() == 2, "x must be a matrix");
    return {{{inputs[0].shape[0]}, inputs[0].dtype}};
  }
  int64_t workspace(const std::vector<Spec>& inputs) const { return rows(inputs) * 8; }
  int64_t backward_workspace(const std::vector<Spec>&) const { return 8; }
  levelbench::Cost cost(const std::vector<Spec>& inputs) const {
    return {double(inputs[0].size()), double(inputs[0].size() + rows(inputs)) * inputs[0].dtype.bits / 8};
  }
  template <class T> void forward(const Forward& call) const {
    auto x = call.input<T>();
    auto y = call.output<T>();
    double* sums = call.workspace<double>();
    require(reinterpret_cast<uintptr_t>(sums) % 64 == 0, "the workspace is not aligned");
    require(call.workspace_bytes() == y.size() * 8, "the workspace is of another size");
    std::fill(sums, sums + y.size(), 0.0);
    for (int64_t i = 0; i < x.size(); ++i) sums[i / x.shape(1)] += x[i];
    for (int64_t i = 0; i < y.size(); ++i) y[i] = T(sums[i]);
  }
  template <class T> void backward(const Backward& call) const {
    auto gradient = call.gradient<T>();
    auto dx = call.input_gradient<T>();
    require(call.workspace_bytes() == 8, "the workspace is of another size");
    call.workspace<double>()[0] = 1;
    for (int64_t i = 0; i < dx.size(); ++i) dx[i] += gradient[i / dx.shape(-1)];
  }
};
LEVELBENCH_OPERATOR(RowSum, float, double)

// An integer input, which has no gradient.
struct Pick {
  static constexpr auto inputs = "table, indices";
  static constexpr auto outputs = "rows";
  std::vector<Spec> infer(const std::vector<Spec>& inputs) const {
    return {{{inputs[1].size(), inputs[0].shape.at(1)}, inputs[0].dtype}};
  }
  template <class T> void forward(const Forward& call) const {
    auto table = call.input<T>(0);
    auto indices = call.input<int64_t>(1);
    auto rows = call.output<T>();
    const int64_t width = table.shape(1);
    for (int64_t i = 0; i < rows.size(); ++i) rows[i] = table[indices[i / width] * width + i % width];
  }
  template <class T> void backward(const Backward& call) const {
    require(call.wants(0) && !call.wants(1), "only the table has a gradient");
    auto indices = call.input<int64_t>(1);
    auto gradient = call.gradient<T>();
    auto dtable = call.input_gradient<T>(0);
    const int64_t width = dtable.shape(1);
    for (int64_t i = 0; i < gradient.size(); ++i) dtable[indices[i / width] * width + i % width] += gradient[i];
  }
};
LEVELBENCH_OPERATOR(Pick, float, double)

// An integer output, which has no gradient either.
struct Largest {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "value, index";
  std::vector<Spec> infer(const std::vector<Spec>& inputs) const {
    return {{{}, inputs[0].dtype}, {{}, levelbench::TypeOf<int64_t>::value}};
  }
  template <class T> void forward(const Forward& call) const {
    auto x = call.input<T>();
    require(x.size() > 0, "the largest of nothing");
    int64_t at = 0;
    for (int64_t i = 1; i < x.size(); ++i) at = x[i] > x[at] ? i : at;
    call.output<T>(0)[0] = x[at];
    call.output<int64_t>(1)[0] = at;
  }
  template <class T> void backward(const Backward& call) const {
    require(call.has_gradient(0) && !call.has_gradient(1), "only the value has a gradient");
    call.input_gradient<T>()[call.output<int64_t>(1)[0]] = call.gradient<T>(0)[0];
  }
};
LEVELBENCH_OPERATOR(Largest, float, double)

// No backward; the short types, whose arithmetic is in float.
struct Square {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  template <class T> void forward(const Forward& call) const {
    auto x = call.input<T>();
    auto y = call.output<T>();
    for (int64_t i = 0; i < x.size(); ++i) y[i] = x[i] * x[i];
  }
};
LEVELBENCH_OPERATOR(Square, float, double, levelbench::float16, levelbench::bfloat16)

// Where the arrays are, so that a test can see that nothing was copied.
struct Address {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "at";
  std::vector<Spec> infer(const std::vector<Spec>&) const { return {{{2}, levelbench::TypeOf<int64_t>::value}}; }
  template <class T> void forward(const Forward& call) const {
    auto at = call.output<int64_t>();
    at[0] = reinterpret_cast<int64_t>(call.input<T>().data);
    at[1] = reinterpret_cast<int64_t>(at.data);
  }
};
LEVELBENCH_OPERATOR(Address, float)

// What goes wrong.
struct Throws {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  template <class T> void forward(const Forward& call) const {
    require(call.input<T>(0)[0] < 0, "100% of x must be negative");
    if (call.input<T>(0)[0] < -1) throw 7;
    call.input<double>(0);
  }
};
LEVELBENCH_OPERATOR(Throws, float)

struct Crash {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  template <class T> void forward(const Forward& call) const { call.output<T>()[0] = call.input<T>()[0]; }
  template <class T> void backward(const Backward& call) const { call.input_gradient<T>()[int64_t(1) << 42] = 1; }
};
LEVELBENCH_OPERATOR(Crash, float)

struct Endless {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  template <class T> void forward(const Forward& call) const {
    for (volatile bool on = true; on;) call.output<T>()[0] = 1;
  }
};
LEVELBENCH_OPERATOR(Endless, float)

struct Border {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  template <class T> void forward(const Forward& call) const {
    auto x = call.input<T>();
    for (int64_t i = 1; i + 1 < x.size(); ++i) call.output<T>()[i] = x[i];
  }
};
LEVELBENCH_OPERATOR(Border, float)

// The short types, changed in place.
struct Assigns {
  static constexpr auto inputs = "x, z";
  static constexpr auto outputs = "y";
  template <class T> void forward(const Forward& call) const {
    auto x = call.input<T>(0), z = call.input<T>(1);
    auto y = call.output<T>();
    for (int64_t i = 0; i < x.size(); ++i) {
      y[i] = x[i];
      y[i] += z[i];
      y[i] *= T(3);
      y[i] -= 1;
      y[i] /= 2.0;
    }
  }
};
LEVELBENCH_OPERATOR(Assigns, float, double, levelbench::float16, levelbench::bfloat16)

// How large its workspace is said to be, in forward; it has one in backward alone.
struct Scratch {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  int64_t backward_workspace(const std::vector<Spec>& inputs) const { return inputs[0].size() * 1024; }
  template <class T> void forward(const Forward& call) const { call.output<T>()[0] = T(call.workspace_bytes()); }
  template <class T> void backward(const Backward& call) const {
    call.input_gradient<T>()[0] = T(reinterpret_cast<uintptr_t>(call.workspace<char>()) % 64);
  }
};
LEVELBENCH_OPERATOR(Scratch, float)

namespace inner {
// In a namespace, and a list without a default.
struct Listed {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  std::vector<double> taps;
  explicit Listed(levelbench::Attributes& a) : taps(a.get("taps", std::vector<double>{})) {}
  template <class T> void forward(const Forward& call) const {
    call.output<T>()[0] = T(std::accumulate(taps.begin(), taps.end(), 0.0));
  }
};
}  // namespace inner
LEVELBENCH_OPERATOR(inner::Listed, float)
