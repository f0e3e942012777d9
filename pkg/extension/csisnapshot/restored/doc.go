// Package restored has what a restore makes of the CSI snapshots in a backup: a VolumeSnapshot and
// its content for each claim, bound to what the driver stored, which no restore removes. Names,
// labels and fields are Velero 1.18's. Both objects go again once no claim needs them.
package restored

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/types"
)

// AnnotationServer on a VolumeSnapshot or its content: the namespace of the server whose restore made
// it, and which removes it.
const AnnotationServer = "holdfast.io/restored-by"

// Name is what the VolumeSnapshot of a backup and its content are called after a restore (Velero
// 1.18): the same for every attempt of the same restore.
func Name(restore types.UID, snapshot string) string {
	return digestText(string(restore) + "/" + snapshot)
}

// NameOf is the name where the backup has several of that name, which would share one content.
func NameOf(restore types.UID, of types.NamespacedName) string {
	return digestText(string(restore) + "/" + of.String())
}

func digestText(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
