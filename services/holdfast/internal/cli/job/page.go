package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Page is a description being written. It is kept in memory: its parts come from several downloads,
// and a page that breaks off would mislead.
type Page struct{ buf bytes.Buffer }

// WriteTo writes the page.
func (p *Page) WriteTo(w io.Writer) (int64, error) { return p.buf.WriteTo(w) }

// Field writes a name and a value; an empty value is "<none>".
func (p *Page) Field(indent int, name string, value any) {
	text := fmt.Sprint(value)
	if text == "" {
		text = "<none>"
	}
	_, _ = fmt.Fprintf(&p.buf, "%s%-*s%s\n", strings.Repeat("  ", indent), max(30-2*indent, len(name)+2), name+":", text)
}

// Heading writes a name that fields follow, after an empty line.
func (p *Page) Heading(name string) { _, _ = fmt.Fprintf(&p.buf, "\n%s:\n", name) }

// Gap writes an empty line.
func (p *Page) Gap() { _ = p.buf.WriteByte('\n') }

// List writes one value per line, indented.
func (p *Page) List(indent int, values []string) {
	for _, v := range values {
		_, _ = fmt.Fprintf(&p.buf, "%s- %s\n", strings.Repeat("  ", indent), v)
	}
}

// Map writes a map's entries in order of their keys.
func (p *Page) Map(name string, m map[string]string) {
	if len(m) == 0 {
		p.Field(0, name, "<none>")
		return
	}
	_, _ = fmt.Fprintf(&p.buf, "%s:\n", name)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		p.Field(1, key, m[key])
	}
}

// FormatNames joins names, with what an empty list means.
func FormatNames(names []string, empty string) string {
	if len(names) == 0 {
		return empty
	}
	return strings.Join(names, ", ")
}

// FormatOptionalBool renders a tri-state value.
func FormatOptionalBool(b *bool, unset string) string {
	if b == nil {
		return unset
	}
	return fmt.Sprint(*b)
}

// Messages are the warnings or the errors of a results file (Velero 1.18).
type Messages struct {
	Velero     []string            `json:"velero,omitempty"`
	Cluster    []string            `json:"cluster,omitempty"`
	Namespaces map[string][]string `json:"namespaces,omitempty"`
}

// Results is a results file.
type Results struct {
	Warnings Messages `json:"warnings"`
	Errors   Messages `json:"errors"`
}

// Files are what a job left in its bucket.
type Files struct {
	Results   *Results            `json:"results,omitempty"`
	Volumes   []Volume            `json:"volumes"`
	Resources map[string][]string `json:"resources,omitempty"`
	// Problems are the files that exist and could not be read.
	Problems []string `json:"problems,omitempty"`
}

// Results writes a results file; nothing when there is none.
func (p *Page) Results(r *Results) {
	if r != nil {
		p.writeMessages("Errors", r.Errors)
		p.writeMessages("Warnings", r.Warnings)
	}
}

func (p *Page) writeMessages(name string, m Messages) {
	p.Heading(name)
	p.Field(1, "Server", countOf(m.Velero))
	p.List(2, m.Velero)
	p.Field(1, "Cluster", countOf(m.Cluster))
	p.List(2, m.Cluster)
	for _, ns := range slices.Sorted(maps.Keys(m.Namespaces)) {
		p.Field(1, "Namespace "+ns, countOf(m.Namespaces[ns]))
		p.List(2, m.Namespaces[ns])
	}
}

func countOf(messages []string) string { return fmt.Sprint(len(messages)) }

// Volume is what a description shows of one entry of a volumeinfo file.
type Volume struct {
	PVCName       string `json:"pvcName,omitempty"`
	PVCNamespace  string `json:"pvcNamespace,omitempty"`
	PVName        string `json:"pvName,omitempty"`
	BackupMethod  string `json:"backupMethod,omitempty"`
	RestoreMethod string `json:"restoreMethod,omitempty"`
	Skipped       bool   `json:"skipped,omitempty"`
	SkippedReason string `json:"skippedReason,omitempty"`
	Result        string `json:"result,omitempty"`
	// Backed and Restored are what a file-system backup has of the volume of a Pod, which may be no claim.
	Backed   *PodVolume `json:"pvbInfo,omitempty"`
	Restored *PodVolume `json:"pvrInfo,omitempty"`
}

// PodVolume names the volume of a Pod.
type PodVolume struct {
	Namespace string `json:"podNamespace"`
	Pod       string `json:"podName"`
	Name      string `json:"volumeName"`
}

// formatName returns NAMESPACE/CLAIM, NAMESPACE/POD/VOLUME of a volume that is no claim, or the name of the PersistentVolume.
func (v *Volume) formatName() string {
	pod := cmp.Or(v.Backed, v.Restored)
	switch {
	case v.PVCName != "":
		return v.PVCNamespace + "/" + v.PVCName
	case pod != nil:
		return pod.Namespace + "/" + pod.Pod + "/" + pod.Name
	}
	return v.PVName
}

// Volumes writes the volumes.
func (p *Page) Volumes(volumes []Volume) {
	if len(volumes) == 0 {
		p.Gap()
		p.Field(0, "Volumes", "<none included>")
		return
	}
	p.Heading("Volumes")
	for i := range volumes {
		v := &volumes[i]
		state := strings.TrimSpace(v.BackupMethod + v.RestoreMethod + " " + v.Result)
		if v.Skipped {
			state = "skipped: " + v.SkippedReason
		}
		p.Field(1, v.formatName(), state)
	}
}

// Resources writes a resource list file: kinds and the names below them.
func (p *Page) Resources(resources map[string][]string) {
	p.Heading("Resources")
	for _, kind := range slices.Sorted(maps.Keys(resources)) {
		p.Field(1, kind, len(resources[kind]))
		p.List(2, resources[kind])
	}
}

// decodeFile reads one JSON document and closes where it came from.
func decodeFile(body io.ReadCloser, into any) error {
	err := json.NewDecoder(body).Decode(into)
	if closeErr := body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}
