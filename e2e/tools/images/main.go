// Command images packs static binaries into OCI images, without a container engine and without a
// base image. It writes, for each image, a file NAME.tar that holds it for every architecture as an
// OCI image layout (https://github.com/opencontainers/image-spec, version 1.1), and
// NAME-ARCH.spdx.json, the list of the modules in the binary that it runs.
//
// The same binaries and flags give the same bytes: no clock, no user and no file of the machine goes
// into an image.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	binaries string // directory with ARCH/NAME
	out      string
	registry string // what stands before the names of images
	version  string
	revision string
	created  time.Time
	limit    int64 // largest compressed size of one architecture's image, in bytes
	base     bool  // with the files that programs of others expect of a base image
	archs    []string
	images   []spec
}

// spec is one image: its name, that of the binary that it runs, and the paths of others in it.
type spec struct {
	name, binary string
	others       []string
}

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("images", flag.ContinueOnError)
	fs.StringVar(&o.binaries, "binaries", "", "directory with ARCH/NAME, static binaries for linux")
	fs.StringVar(&o.out, "out", "", "directory for the images")
	fs.StringVar(&o.registry, "registry", "", "what stands before the names of images, for example registry.example/holdfast")
	fs.StringVar(&o.version, "version", "", "tag of the images")
	fs.StringVar(&o.revision, "revision", "", "commit the binaries were built from")
	seconds := fs.Int64("created", 0, "time of creation in the images, in seconds since 1970")
	fs.Int64Var(&o.limit, "limit", 32<<20, "largest compressed size of an image for one architecture, in bytes")
	fs.BoolVar(&o.base, "base", false, "add /tmp, and names of the users, as images with a base have them")
	archs := fs.String("archs", "amd64,arm64", "architectures, separated by commas")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.created, o.archs = time.Unix(*seconds, 0).UTC(), strings.Split(*archs, ",")
	for _, arg := range fs.Args() {
		name, binaries, ok := strings.Cut(arg, "=")
		paths := strings.Split(binaries, "+")
		if !ok || name == "" || slices.Contains(paths, "") {
			return o, fmt.Errorf("%q is not of the form IMAGE=BINARY[+PATH...]", arg)
		}
		o.images = append(o.images, spec{name, paths[0], paths[1:]})
	}
	for flag, value := range map[string]string{"-binaries": o.binaries, "-out": o.out, "-registry": o.registry, "-version": o.version} {
		if value == "" {
			return o, fmt.Errorf("%s is missing", flag)
		}
	}
	if len(o.images) == 0 {
		return o, errors.New("no IMAGE=BINARY is given")
	}
	return o, nil
}

func run(o options) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	roots, err := authorities()
	if err != nil {
		return err
	}
	for _, s := range o.images {
		if err := pack(&o, s, roots); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// pack writes the image of one binary and its lists of modules.
func pack(o *options, s spec, roots []byte) error {
	index := newIndex(o, s)
	for _, arch := range o.archs {
		binary := filepath.Join(o.binaries, arch, s.binary)
		sbom, err := modules(binary, s.name, o)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(o.out, s.name+"-"+arch+".spdx.json"), sbom, 0o644); err != nil {
			return err
		}
		size, err := index.addImage(o, s, arch, roots)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		if size > o.limit {
			return fmt.Errorf("%s: the image has %d bytes, more than %d", arch, size, o.limit)
		}
		fmt.Printf("%-40s %-6s %5.1f MB\n", s.name, arch, float64(size)/1e6)
	}
	digest, err := index.write(filepath.Join(o.out, s.name+".tar"))
	if err != nil {
		return err
	}
	fmt.Printf("%-40s %s\n", s.name, digest)
	return os.WriteFile(filepath.Join(o.out, s.name+".digest"), []byte(digest+"\n"), 0o644)
}
