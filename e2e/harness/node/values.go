package node

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// WriteValues writes values for the helm chart into the cluster's directory, which name the bucket,
// and returns the path of the file.
func WriteValues(dir string) (string, error) {
	store, err := ReadStore(dir)
	if err != nil {
		return "", err
	}
	type object = map[string]any
	text, err := yaml.Marshal(object{
		"configuration": object{"backupStorageLocation": []object{{
			"name": "default", "provider": "aws", "bucket": Bucket, "default": true,
			"config": object{"region": store.Region, "s3ForcePathStyle": true, "s3Url": store.Endpoint},
		}}},
		"credentials": object{"secretContents": object{
			"cloud": fmt.Sprintf("[default]\naws_access_key_id=%s\naws_secret_access_key=%s\n", store.AccessKey, store.SecretKey),
		}},
	})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "values.yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// imageName returns the name of the image in a file that `make images` wrote, with its tag.
func imageName(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	for archive := tar.NewReader(file); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%s is no image layout: it has no index.json with a name", path)
		}
		if err != nil {
			return "", fmt.Errorf("read %s: %w", path, err)
		}
		if header.Name != "index.json" {
			continue
		}
		var index struct {
			Manifests []struct{ Annotations map[string]string }
		}
		if err := json.NewDecoder(archive).Decode(&index); err != nil {
			return "", fmt.Errorf("read %s: %w", path, err)
		}
		for _, m := range index.Manifests {
			if name := m.Annotations["io.containerd.image.name"]; name != "" {
				return name, nil
			}
		}
	}
}
