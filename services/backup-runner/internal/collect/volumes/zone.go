package volumes

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// zoneKeys are that a volume's node affinity may have for its zone, in the order in which they
// count (Velero 1.18).
var zoneKeys = []string{
	"topology.ebs.csi.aws.com/zone", "topology.disk.csi.azure.com/zone", gkeZone, "topology.cinder.csi.openstack.org/zone",
	"topology.manila.csi.openstack.org/zone", corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone,
}

// gkeZone names all zones of a volume; they are joined.
const (
	gkeZone       = "topology.gke.io/zone"
	gkeZoneJoiner = "__"
)

// Zone returns the availability zone of a volume, from its labels or its node affinity; empty when
// neither has any.
func Zone(pv *corev1.PersistentVolume) string {
	for _, label := range []string{corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone} {
		if zone := pv.Labels[label]; zone != "" {
			return zone
		}
	}
	for _, key := range zoneKeys {
		zones := affinityValues(pv, key)
		switch {
		case len(zones) == 0:
		case key == gkeZone:
			return strings.Join(zones, gkeZoneJoiner)
		default:
			return zones[0]
		}
	}
	return ""
}

// affinityValues returns the values of a node label that the volume requires.
func affinityValues(pv *corev1.PersistentVolume, key string) (values []string) {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key != key || e.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			for _, value := range e.Values {
				if !slices.Contains(values, value) {
					values = append(values, value)
				}
			}
		}
	}
	return values
}
