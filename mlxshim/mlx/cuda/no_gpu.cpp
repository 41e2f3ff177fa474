// A library for the CPU: nothing here is ever called, as it opens no GPU.
#include "gpu.h"
#include "status.h"

namespace mlxcel {

namespace {

[[noreturn]] void absent() { fail(MLXSHIM_ERR_UNSUPPORTED, "this mlxshim is not built for CUDA"); }

}  // namespace

void gpu_open(mx::Device) { absent(); }
GpuMemory gpu_memory(mx::Device) { absent(); }
GpuUse gpu_use() { absent(); }
void gpu_reset_peak() { absent(); }
void gpu_trim(mx::Device) { absent(); }
void gpu_wait(mx::Stream) { absent(); }
std::unique_ptr<GpuPace> gpu_pace(mx::Stream) { absent(); }
std::string gpu_fault(mx::Device) { absent(); }
std::shared_ptr<GpuWatch> gpu_watch(mx::Device) { absent(); }
mx::array gpu_empty(mx::Shape, mx::Dtype, mx::Stream) { absent(); }
void gpu_upload(const mx::array&, int64_t, const void*, int64_t, mx::Stream) { absent(); }
void gpu_download(void*, const mx::array&, int64_t, mx::Stream) { absent(); }
void gpu_fill(const mx::array&, uint32_t, mx::Stream) { absent(); }
int64_t gpu_host_bytes(const mx::array&) { absent(); }
void gpu_kv_write(std::vector<mx::array>&, const std::vector<KvSpan>&, const mx::array&, const mx::array&, mx::Stream) {
  absent();
}
mx::array gpu_attention_in(const AttentionIn&, const mx::array&, const mx::array&, std::optional<mx::array>,
                           std::optional<mx::array>, std::optional<mx::array>, std::vector<Cache*>, std::vector<KvSpan>,
                           mx::Stream) {
  absent();
}
std::vector<mx::array> gpu_calls(GpuLaunch, std::vector<mx::array>, std::vector<mx::Shape>, std::vector<mx::Dtype>,
                                 mx::Stream) {
  absent();
}
mx::array gpu_call(GpuLaunch, std::vector<mx::array>, mx::Shape, mx::Dtype, mx::Stream) { absent(); }
mx::array gpu_take(const mx::array&, const mx::array&, mx::Stream) { absent(); }
void gpu_prepare(const GpuVariant&, mx::Device) { absent(); }
bool gpu_has_matrix_units(mx::Device) { absent(); }
mx::array GpuScratch::dequantize(const mx::array&, const mx::array&, const std::optional<mx::array>&, const std::string&, int,
                                 int, mx::Dtype, mx::Stream) {
  absent();
}
GpuVariant GpuScratch::variant(const std::string&, int) { absent(); }
void GpuScratch::read_by(const mx::array&) { absent(); }
int gpu_dtype(mx::Dtype) { absent(); }
int gpu_quantization(const std::string&) { absent(); }

}  // namespace mlxcel
