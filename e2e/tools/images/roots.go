package main

import (
	"bytes"
	"encoding/pem"
	"errors"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// authorities returns the certificate authorities that images trust, as PEM: Mozilla's, as the
// module golang.org/x/crypto/x509roots/fallback has them, so that they change with go.mod and not
// with the machine. Those that are trusted under a condition only are left out: a PEM file cannot
// state it.
func authorities() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	if out.Len() == 0 {
		return nil, errors.New("no certificate authorities")
	}
	return out.Bytes(), nil
}
