// Package ociimage writes images for test pods, without a container engine.
package ociimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// applets are the commands that images have: the names by which busybox finds out what to be.
var applets = []string{"sh", "cat", "ls", "sleep", "sha256sum", "dd", "cp", "mkdir", "rm", "sync", "touch", "date", "wget", "nslookup", "httpd", "nc", "id", "stat", "find", "sort", "true", "false", "test", "tar"}

// Busybox writes an image with a static busybox into a tar file, as an OCI image layout, version 1.1
// (https://github.com/opencontainers/image-spec). containerd imports it as name. Without a command
// it sleeps.
func Busybox(path, binary, name string) error {
	program, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("write an image: %w", err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	headers := []*tar.Header{
		{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))},
	}
	for _, applet := range applets {
		headers = append(headers, &tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777})
	}
	for _, header := range headers {
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("write an image: %w", err)
		}
		if header.Size > 0 {
			if _, err := w.Write(program); err != nil {
				return fmt.Errorf("write an image: %w", err)
			}
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write an image: %w", err)
	}
	return writeImage(path, name, layer.Bytes())
}

// jsonObject is a JSON object of the image format.
type jsonObject = map[string]any

func writeImage(path, name string, layer []byte) error {
	var file bytes.Buffer
	w := tar.NewWriter(&file)
	var failed error
	add := func(name string, data []byte) {
		if failed == nil {
			failed = w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))})
		}
		if failed == nil {
			_, failed = w.Write(data)
		}
	}
	blob := func(mediaType string, data []byte) jsonObject {
		sum := sha256.Sum256(data)
		digest := hex.EncodeToString(sum[:])
		add("blobs/sha256/"+digest, data)
		return jsonObject{"mediaType": "application/vnd.oci.image." + mediaType, "digest": "sha256:" + digest, "size": len(data)}
	}
	content := blob("layer.v1.tar", layer)
	config := blob("config.v1+json", encodeObject(jsonObject{
		"os": "linux", "architecture": runtime.GOARCH, "rootfs": jsonObject{"type": "layers", "diff_ids": []any{content["digest"]}},
		"config": jsonObject{"Cmd": []string{"/bin/sleep", "1000000000"}, "Env": []string{"PATH=/bin"}},
	}))
	manifest := blob("manifest.v1+json", encodeObject(jsonObject{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []any{content},
	}))
	manifest["annotations"] = jsonObject{"io.containerd.image.name": name}
	add("index.json", encodeObject(jsonObject{"schemaVersion": 2, "manifests": []any{manifest}}))
	add("oci-layout", encodeObject(jsonObject{"imageLayoutVersion": "1.0.0"}))
	if failed == nil {
		failed = w.Close()
	}
	if failed == nil {
		failed = os.WriteFile(path, file.Bytes(), 0o600)
	}
	if failed != nil {
		return fmt.Errorf("write an image: %w", failed)
	}
	return nil
}

// encodeObject encodes an object; it has nothing that JSON cannot hold.
func encodeObject(o jsonObject) []byte {
	data, _ := json.Marshal(o)
	return data
}
