// Package build describes what the running program was built from.
package build

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// version is set by the linker (-X …/internal/build.version=1.2.3) in a build that does not see the repository, as that
// of the image.
var version string

// Info describes a program.
type Info struct {
	// Version is the one that the build was given, else that of the module, else "devel".
	Version string `json:"version"`
	// Commit is the revision of the repository, "" if the build did not see it. Modified means that files were changed
	// since.
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
}

// Get returns the description of the running program.
var Get = sync.OnceValue(func() Info {
	read, _ := debug.ReadBuildInfo()
	return describe(version, read)
})

func describe(given string, read *debug.BuildInfo) Info {
	info := Info{Version: given}
	if read != nil {
		info.Go = read.GoVersion
		if read.Main.Version != "(devel)" {
			info.Version = cmp.Or(given, read.Main.Version)
		}
		for _, s := range read.Settings {
			switch s.Key {
			case "vcs.revision":
				info.Commit = s.Value
			case "vcs.modified":
				info.Modified = s.Value == "true"
			}
		}
	}
	info.Version = cmp.Or(info.Version, "devel")
	return info
}

// String is the description on one line.
func (i Info) String() string {
	text := i.Version
	if i.Commit != "" {
		text += ", commit " + i.Commit
		if i.Modified {
			text += " with changes"
		}
	}
	return text + ", " + i.Go
}

// Register adds the metric that shows the version.
func (i Info) Register(registry prometheus.Registerer) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "annals_build_info", Help: "1, with what the program was built from.",
		ConstLabels: prometheus.Labels{"version": i.Version, "commit": i.Commit, "go": i.Go},
	}, func() float64 { return 1 }))
}

// Mark adds info.x-build to an OpenAPI document. The version of the document stays that of the contract.
func (i Info) Mark(document []byte) []byte {
	const info = "\ninfo:\n"
	return bytes.Replace(document, []byte(info), fmt.Appendf(nil, "%s  x-build: %q\n", info, i.Version), 1)
}
