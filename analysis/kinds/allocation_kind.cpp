// How policies split a budget over layers, trace by trace.
#include "analysis/kinds/allocation_settings.hpp"

namespace kvsim::analysis {

Kind allocation_kind() {
  Kind kind;
  kind.name = "allocation";
  kind.summary = "How policies split a budget over layers";
  kind.source = "XKV, Fig. 10";
  kind.settings = allocation_settings();
  kind.columns = allocation_columns();
  kind.notes = {"tokens: per lane, mean over the layer's KV heads. share: of all layers' tokens."};
  kind.measure = measure_allocation;
  return kind;
}

}  // namespace kvsim::analysis
