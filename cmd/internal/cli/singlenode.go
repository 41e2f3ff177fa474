package cli

import (
	"fmt"
	"slices"
	"strings"
)

// Flags that other programs have for computing on several machines, or on several GPUs at once. People bring them along
// in their scripts, and ignoring them would be a surprise.
var (
	distributedFlags = []string{
		"tp", "pp", "ep", "tp-size", "pp-size", "ep-size", "dp-size", "world-size", "rank", "node-rank", "nnodes", "hostfile", "hosts",
		"peers", "dist-init-addr", "coordinator",
	}
	distributedBeginnings = []string{"cluster", "distributed", "tensor-parallel", "pipeline-parallel", "tp-", "pp-"}
)

// refuseDistributed returns what to say about a flag that is for several nodes, "" for any other.
func refuseDistributed(flag string) string {
	flag = strings.ReplaceAll(flag, "_", "-")
	begins := func(beginning string) bool { return strings.HasPrefix(flag, beginning) }
	if !slices.Contains(distributedFlags, flag) && !slices.ContainsFunc(distributedBeginnings, begins) {
		return ""
	}
	return fmt.Sprintf("--%s is not possible: this build is single-node, one process on one device; leave the flag out", flag)
}
