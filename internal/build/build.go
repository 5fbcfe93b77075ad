// Package build describes what the running program was built from.
package build

import (
	"cmp"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Version is that of the program, the newest of CHANGELOG.md. A build between two versions has that of the one before,
// and its commit.
const Version = "1.0.0-rc.1"

// commit is set by the linker (-X …/internal/build.commit=abc) in a build that does not see the repository, as that of
// the image.
var commit string

// Info describes a program.
type Info struct {
	Version string `json:"version"`
	// Commit is the revision of the repository, "" if the build neither saw it nor was given it. Modified means that
	// files were changed since.
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
}

// Get returns the description of the running program.
var Get = sync.OnceValue(func() Info {
	read, _ := debug.ReadBuildInfo()
	return describe(commit, read)
})

func describe(given string, read *debug.BuildInfo) Info {
	info := Info{Version: Version, Commit: given}
	if read == nil {
		return info
	}
	info.Go = read.GoVersion
	for _, s := range read.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Commit = cmp.Or(given, s.Value)
		case "vcs.modified":
			info.Modified = s.Value == "true"
		}
	}
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
