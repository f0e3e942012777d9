package main

import (
	"archive/tar"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// build compiles a small program for both architectures.
func build(t *testing.T) string {
	t.Helper()
	dir, source := t.TempDir(), t.TempDir()
	write(t, filepath.Join(source, "go.mod"), "module example.com/small\n\ngo 1.26.0\n")
	write(t, filepath.Join(source, "main.go"), "package main\n\nfunc main() { println(\"small\") }\n")
	for _, arch := range []string{"amd64", "arm64"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(dir, arch, "small"), ".")
		cmd.Dir, cmd.Env = source, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func packed(t *testing.T, binaries string, limit int64) (string, error) {
	t.Helper()
	out := t.TempDir()
	return out, run(options{
		binaries: binaries, out: out, registry: "registry.example/holdfast", version: "v1", revision: "abc", created: time.Unix(1_700_000_000, 0).UTC(),
		limit: limit, archs: []string{"amd64", "arm64"}, images: []spec{{name: "holdfast-small", binary: "small"}},
	})
}

// read unpacks the archive and returns the images in it, by architecture.
func read(t *testing.T, dir string) (*v1.IndexManifest, map[string]v1.Image) {
	t.Helper()
	unpacked := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-xf", filepath.Join(dir, "holdfast-small.tar"), "-C", unpacked).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	top, err := layout.ImageIndexFromPath(unpacked)
	fatal(t, err)
	fatal(t, validate.Index(top))
	manifest, err := top.IndexManifest()
	fatal(t, err)
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	fatal(t, err)
	inner, err := index.IndexManifest()
	fatal(t, err)
	images := map[string]v1.Image{}
	for _, m := range inner.Manifests {
		image, err := index.Image(m.Digest)
		fatal(t, err)
		images[m.Platform.Architecture] = image
	}
	return manifest, images
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestImagesRunAsAUserWithoutRightsOnEveryArchitecture(t *testing.T) {
	out, err := packed(t, build(t), 30<<20)
	fatal(t, err)
	manifest, images := read(t, out)
	if name := manifest.Manifests[0].Annotations["io.containerd.image.name"]; name != "registry.example/holdfast/holdfast-small:v1" {
		t.Errorf("containerd would import it as %q", name)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		image, ok := images[arch]
		if !ok {
			t.Fatalf("no image for %s", arch)
		}
		config, err := image.ConfigFile()
		fatal(t, err)
		if config.Config.User != "65532:65532" || config.Architecture != arch || config.OS != "linux" {
			t.Errorf("%s: user %q, architecture %q, system %q", arch, config.Config.User, config.Architecture, config.OS)
		}
		if !slices.Equal(config.Config.Entrypoint, []string{"/small"}) {
			t.Errorf("%s: entrypoint %q", arch, config.Config.Entrypoint)
		}
	}
}

func TestAnImageOfSeveralBinariesHasWhatTheyExpectOfABase(t *testing.T) {
	binaries, out := build(t), t.TempDir()
	small, err := os.ReadFile(filepath.Join(binaries, "arm64", "small"))
	fatal(t, err)
	fatal(t, os.Mkdir(filepath.Join(binaries, "arm64", "plugins"), 0o700))
	write(t, filepath.Join(binaries, "arm64", "plugins", "one"), string(small))
	o, err := parse([]string{"-base", "-binaries", binaries, "-out", out, "-registry", "r", "-version", "v", "-archs", "arm64", "holdfast-small=small+plugins/one"})
	fatal(t, err)
	fatal(t, run(o))
	_, images := read(t, out)
	files := map[string]int64{}
	layer := mutate.Extract(images["arm64"])
	defer func() { _ = layer.Close() }()
	for archive := tar.NewReader(layer); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		fatal(t, err)
		files[header.Name] = header.Mode
	}
	for name, mode := range map[string]int64{"small": 0o755, "plugins": 0o755, "plugins/one": 0o755, "tmp": 0o1777, "etc/passwd": 0o644, "etc/group": 0o644, rootsPath: 0o644} {
		if files[name] != mode {
			t.Errorf("%s has mode %o, want %o", name, files[name], mode)
		}
	}
}

func TestTwoBuildsAreTheSameBytes(t *testing.T) {
	first, err := packed(t, build(t), 30<<20)
	fatal(t, err)
	second, err := packed(t, build(t), 30<<20)
	fatal(t, err)
	if out, err := exec.CommandContext(t.Context(), "diff", "-r", first, second).CombinedOutput(); err != nil {
		t.Errorf("two builds differ: %s", out)
	}
}

func TestAnImageThatIsTooLargeIsRefused(t *testing.T) {
	if _, err := packed(t, build(t), 1<<20); err != nil {
		t.Fatalf("a small program and the authorities take less than a MiB: %v", err)
	}
	if _, err := packed(t, build(t), 1000); err == nil || !strings.Contains(err.Error(), "more than 1000") {
		t.Errorf("got %v", err)
	}
}

func TestTheListOfModulesNamesTheToolchainAndTheBinary(t *testing.T) {
	out, err := packed(t, build(t), 30<<20)
	fatal(t, err)
	data, err := os.ReadFile(filepath.Join(out, "holdfast-small-arm64.spdx.json"))
	fatal(t, err)
	var doc document
	fatal(t, json.Unmarshal(data, &doc))
	if doc.Packages[0].Name != "holdfast-small" || len(doc.Packages[0].Checksums) != 1 || doc.Packages[1].Name != "stdlib" || doc.Packages[1].Version == "" {
		t.Errorf("got %+v", doc.Packages)
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	for _, c := range []struct{ want, args string }{
		{"-binaries is missing", "-out o -registry r -version v a=b"},
		{"-version is missing", "-binaries b -out o -registry r a=b"},
		{"no IMAGE=BINARY", "-binaries b -out o -registry r -version v"},
		{`"a" is not of the form IMAGE=BINARY`, "-binaries b -out o -registry r -version v a"},
	} {
		if _, err := parse(strings.Fields(c.args)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.want, err)
		}
	}
}
