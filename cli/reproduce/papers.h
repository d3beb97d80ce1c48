// The papers' tables on their simulated testbeds: calibrated, planned and run, beside what the papers print. What each
// row means, where it stands in its paper and why some are apart: docs/papers.md.
//
// Without noise in the testbeds' files every call gives the same figures but for rounding. Takes from seconds (MoNTA)
// to minutes.
#pragma once

#include <vector>

#include "cli/reproduce/testbed.h"
#include "models/status.h"
#include "moeplan/v1/report.pb.h"

namespace moeplan::cli {

using Tables = std::vector<v1::ReproducedTable>;

// The fits of §VI-B, Table IV, and what §VI says of all layers of Table III.
StatusOr<Tables> ReproduceParm(const ShowProgress& progress);
// Table 8, the choices of Figure 14, and the headlines of the all-to-all and of the step.
StatusOr<Tables> ReproduceMonta(const ShowProgress& progress);
// Tables 10 and 7, the 675 layers of Table 4, and Pipe-A2A.
StatusOr<Tables> ReproduceSchemoe(const ShowProgress& progress);
// Gains of Figures 11 and 12, the exposed communication of Figure 13, what both hang on, the passes of Figure 16, the
// ranges of Figure 6, steps as they run, and what §2.2, §5.1 and §7.3 say. One row is a wall time, the longest
// planning.
StatusOr<Tables> ReproduceLancet(const ShowProgress& progress);
// No paper's: what each paper's rule chooses for the layers of deploy/testbeds/grids, on every testbed, beside the
// joint search's choice; and whole steps with what each paper has, Lancet's passes among them.
StatusOr<Tables> ReproduceJoint(const ShowProgress& progress);

}  // namespace moeplan::cli
