// Random quantized matrices and what they mean, computed in double precision from the format's definition.
#pragma once

#include <cmath>

#include "abi.h"

namespace test {

struct Format {
  int64_t mode, bits, group;

  std::string print() const {
    return "mode " + std::to_string(mode) + ", " + std::to_string(bits) + " bits, group " + std::to_string(group);
  }
};

inline std::vector<Format> all_formats() {
  std::vector<Format> all;
  for (int64_t bits : {2, 3, 4, 5, 6, 8})
    for (int64_t group : {32, 64, 128}) all.push_back({MLXSHIM_QUANT_AFFINE, bits, group});
  all.push_back({MLXSHIM_QUANT_MXFP4, 4, 32});
  all.push_back({MLXSHIM_QUANT_MXFP8, 8, 32});
  all.push_back({MLXSHIM_QUANT_NVFP4, 4, 16});
  return all;
}

// Small floats: sign, exponent with its bias, fraction.
inline double small_float(uint32_t code, int exponent_bits, int fraction_bits, int bias) {
  uint32_t fraction = code & ((1u << fraction_bits) - 1),
           exponent = code >> fraction_bits & ((1u << exponent_bits) - 1);
  double magnitude = exponent ? std::ldexp(1 + fraction / double(1 << fraction_bits), int(exponent) - bias)
                              : std::ldexp(fraction / double(1 << fraction_bits), 1 - bias);
  return code >> (exponent_bits + fraction_bits) & 1 ? -magnitude : magnitude;
}

struct Quantized {
  std::vector<uint32_t> words;        // [rows, width * bits / 32]
  std::vector<float> scales, biases;  // affine: [rows, width / group]
  std::vector<uint8_t> scale_bytes;   // the others
  std::vector<double> values;         // [rows, width]
};

// The nearest number of so many binary digits.
inline float rounded(float value, int digits) {
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, digits)), exponent - digits);
}

// digits: of the scales and biases of an affine format.
inline Quantized random_quantized(Random& random, Format f, int64_t rows, int64_t width, int digits = 24) {
  Quantized q;
  q.words.resize(size_t(rows * width * f.bits / 32));
  for (int64_t i = 0; i < rows * width / f.group; i++) {
    if (f.mode == MLXSHIM_QUANT_AFFINE) {
      q.scales.push_back(rounded(0.05f * random.normal(), digits));
      q.biases.push_back(rounded(0.1f * random.normal(), digits));
    } else if (f.mode == MLXSHIM_QUANT_NVFP4) {
      q.scale_bytes.push_back(uint8_t(random.below(0x48)));  // e4m3 from 0 to 4
    } else {
      q.scale_bytes.push_back(uint8_t(120 + random.below(8)));  // powers of two from 1/128 to 1
    }
  }
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < width; c++) {
      uint32_t code = random.word() & ((1u << f.bits) - 1);
      if (f.mode == MLXSHIM_QUANT_MXFP8 && (code & 0x7f) == 0x7f) code ^= 1;  // not NaN
      // The bits of a row follow each other through its words, lowest first.
      for (int64_t b = 0; b < f.bits; b++) {
        int64_t at = c * f.bits + b;
        q.words[size_t(r * width * f.bits / 32 + at / 32)] |= (code >> b & 1) << at % 32;
      }
      size_t g = size_t((r * width + c) / f.group);
      switch (f.mode) {
        case MLXSHIM_QUANT_AFFINE: q.values.push_back(double(q.scales[g]) * code + q.biases[g]); break;
        case MLXSHIM_QUANT_MXFP4:
          q.values.push_back(small_float(code, 2, 1, 1) * std::ldexp(1, q.scale_bytes[g] - 127));
          break;
        case MLXSHIM_QUANT_MXFP8:
          q.values.push_back(small_float(code, 4, 3, 7) * std::ldexp(1, q.scale_bytes[g] - 127));
          break;
        case MLXSHIM_QUANT_NVFP4:
          q.values.push_back(small_float(code, 2, 1, 1) * small_float(q.scale_bytes[g], 4, 3, 7));
          break;
      }
    }
  return q;
}

}  // namespace test
