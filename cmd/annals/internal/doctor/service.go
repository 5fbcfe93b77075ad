package doctor

import (
	"maps"
	"slices"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
)

// checkService reports how a running service is, and which settings of this environment it does not have.
func (e *examination) checkService(is operatorapi.Status) {
	e.ok("service", "version %s runs as pid %d on %s", is.Version, is.PID, is.DataDir)
	for _, part := range is.NotReady {
		e.broken("service", "deploy/RUNBOOK.md#health has what to do", "it is not ready: %s", part)
	}
	for _, line := range is.Remarks.Lines() {
		e.note("service", "deploy/RUNBOOK.md#health has what to do", "%s", line)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Settings)) {
		if here, there := e.Settings[name], is.Settings[name]; here != there && name != "ANNALS_DATA_DIR" {
			if there == "" {
				there = "the default"
			}
			e.note("settings", "restart the service with it, or unset it here",
				"%s is %s here, and %s in the running service", name, here, there)
		}
	}
	e.Settings = is.Settings
	if is.API != "" {
		e.Service.URLs.API = is.API
	}
	e.Service.TLSCert, e.Service.TLSKey = is.Settings["ANNALS_TLS_CERT"], is.Settings["ANNALS_TLS_KEY"]
	if is.DiskFree != nil && is.DiskRequired != nil {
		e.disk(*is.DiskFree, *is.DiskRequired)
	}
}
