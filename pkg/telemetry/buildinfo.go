package telemetry

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version and commit are set by the linker: -ldflags "-X
// github.com/holdfast-io/holdfast/pkg/telemetry.version=v1.2.3".
var (
	version string
	commit  string
)

// Version is the release, for example "v1.2.3", or "dev" for a build without one.
func Version() string {
	if version != "" {
		return version
	}
	return "dev"
}

// Commit is the git commit the binary was built from, from the linker flag or else from the
// toolchain's VCS stamp; "unknown" where neither is there. A stamped build of a changed work tree
// ends in "-dirty".
func Commit() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return stampedCommit(info.Settings)
}

// BuildInfo is the line every binary prints for --version, without its name.
func BuildInfo() string {
	return fmt.Sprintf("%s (commit %s, %s %s/%s)", Version(), Commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func stampedCommit(settings []debug.BuildSetting) string {
	revision, suffix := "unknown", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			suffix = "-dirty"
		}
	}
	return revision + suffix
}
