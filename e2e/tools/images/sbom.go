package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// document is an SPDX 2.3 document (https://spdx.github.io/spdx-spec/v2.3).
type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []module       `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type module struct {
	ID        string      `json:"SPDXID"`
	Name      string      `json:"name"`
	Version   string      `json:"versionInfo"`
	Download  string      `json:"downloadLocation"`
	Analyzed  bool        `json:"filesAnalyzed"`
	Checksums []checksum  `json:"checksums,omitempty"`
	Refs      []reference `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	documentID = "SPDXRef-DOCUMENT"
	binaryID   = "SPDXRef-binary"
)

// modules lists what the Go toolchain noted in a binary: the modules that were linked into it, and
// the toolchain.
func modules(path, name string, o *options) ([]byte, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(data)
	sum := hex.EncodeToString(hash[:])
	doc := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: name, Namespace: "https://" + o.registry + "/" + name + "/" + sum,
		Creation: creation{o.created.Format(time.RFC3339), []string{"Tool: holdfast-images"}},
		Packages: []module{{
			ID: binaryID, Name: name, Version: o.version, Download: "NOASSERTION",
			Checksums: []checksum{{"SHA256", sum}},
		}},
		Relationships: []relationship{{documentID, "DESCRIBES", binaryID}},
	}
	add := func(path, version string) {
		id := fmt.Sprintf("SPDXRef-module-%d", len(doc.Packages))
		doc.Packages = append(doc.Packages, module{
			ID: id, Name: path, Version: version, Download: "NOASSERTION",
			Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + strings.ToLower(path) + "@" + version}},
		})
		doc.Relationships = append(doc.Relationships, relationship{binaryID, "DEPENDS_ON", id})
	}
	add("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	for _, dep := range info.Deps {
		dep = replaced(dep)
		add(dep.Path, dep.Version)
	}
	return json.MarshalIndent(doc, "", "  ")
}

func replaced(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}
