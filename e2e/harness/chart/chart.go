// Package chart renders the helm chart with the real helm, and has services of a test run with the
// accounts and roles that the chart gives them.
package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// Release is the name under which tests render and install the chart.
const Release = "holdfast"

// Dir returns the directory of the chart.
func Dir() (string, error) {
	root, err := testbed.RepositoryRoot()
	return filepath.Join(root, "deploy", "helm", "holdfast"), err
}

// AppVersion returns the appVersion of the chart, the tag of images that it asks for unless image.tag
// says otherwise.
func AppVersion() (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return "", err
	}
	var facts struct {
		AppVersion string `json:"appVersion"`
	}
	if err := sigsyaml.Unmarshal(text, &facts); err != nil {
		return "", fmt.Errorf("Chart.yaml: %w", err)
	}
	return facts.AppVersion, nil
}

// Helm runs helm and returns what it wrote to standard output. home keeps its caches. The error has
// what helm complained about.
func Helm(ctx context.Context, home string, args ...string) (string, error) {
	binary, err := testbed.Binary("helm")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "HELM_PLUGINS="+home, "HELM_MAX_HISTORY=3")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w: %s%s", args[0], err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

// Render returns the objects that the chart makes in a namespace with further arguments of helm
// template, such as --set and --values.
func Render(ctx context.Context, home, namespace string, args ...string) ([]*unstructured.Unstructured, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	out, err := Helm(ctx, home, append([]string{"template", Release, dir, "--namespace", namespace}, args...)...)
	if err != nil {
		return nil, err
	}
	return Decode([]byte(out))
}

// Decode splits YAML documents into objects.
func Decode(text []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)+1); ; {
		object := &unstructured.Unstructured{}
		switch err := documents.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("decode what helm rendered: %w", err)
		case len(object.Object) > 0:
			all = append(all, object)
		}
	}
}
