package podvolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// verdict is what becomes of a volume that the backup chooses.
type verdict struct {
	podVolume
	facts *claimFacts // of its claim; nil without one
	// reason is why it is not taken; empty for one that is.
	reason string
	level  joblog.Level // of the reason
}

func (v *verdict) refuseVolume(level joblog.Level, format string, args ...any) {
	v.level, v.reason = level, fmt.Sprintf(format, args...)
}

// explainExclusion says how to have the volume not be chosen.
func (v *verdict) explainExclusion() string {
	how := "name the volume in its annotation " + velerov1.AnnotationBackupVolumesExcludes
	if v.explicit {
		how = "take the volume out of its annotation " + velerov1.AnnotationBackupVolumes
	}
	if v.claim != "" {
		how += ", which leaves the claim to snapshots"
	}
	return how
}

// skipLevel is the level of a reason that is no failure where the volume is chosen by default.
func (v *verdict) skipLevel() joblog.Level {
	if v.explicit {
		return joblog.Error
	}
	return joblog.Info
}

// judgePod decides on each volume of a Pod that the backup chooses. hash is that of the operation
// of the Pod: what an earlier holder requested stays requested. The caller has locked the
// Backupper.
func (b *Backupper) judgePod(ctx context.Context, pod *corev1.Pod, hash string) ([]verdict, podFacts, error) {
	chosen, missing := chooseVolumes(pod, b.byDefault(), b.Claims)
	var all []verdict
	for _, name := range missing {
		v := verdict{podVolume: podVolume{name: name, explicit: true}}
		v.refuseVolume(joblog.Error, "%s", explainMissing(pod, name))
		all = append(all, v)
	}
	if len(chosen) == 0 {
		return all, podFacts{}, nil
	}
	s, err := b.surveyNamespace(ctx, pod.Namespace)
	if err != nil {
		return nil, podFacts{}, err
	}
	live, there := s.pods[pod.Name]
	for i := range chosen {
		v := verdict{podVolume: chosen[i]}
		if _, requested := b.past[hash][v.name]; !requested && (!there || live.uid != string(pod.UID)) {
			v.refuseVolume(joblog.Error, "the pod is gone")
		}
		if v.reason == "" {
			err = b.judgeVolume(ctx, s, pod.Namespace, &live, &v, hash)
		}
		if err != nil {
			return nil, live, err
		}
		all = append(all, v)
	}
	return all, live, nil
}

// judgeVolume decides on a volume of a Pod that exists.
func (b *Backupper) judgeVolume(ctx context.Context, s *survey, namespace string, p *podFacts, v *verdict, hash string) (err error) {
	if v.unfit != "" {
		v.refuseVolume(min(v.skipLevel(), joblog.Warning), "%s", v.unfit)
		return nil
	}
	claim := client.ObjectKey{Namespace: namespace, Name: v.claim}
	if v.claim != "" {
		if v.facts, err = b.readClaim(ctx, claim); err != nil {
			return err
		}
	}
	if _, requested := b.past[hash][v.name]; requested {
		return nil
	}
	ended := p.phase == corev1.PodSucceeded || p.phase == corev1.PodFailed
	switch owner := b.ownerOf(s, claim); {
	case v.facts != nil && v.facts.unfit != "":
		level := v.skipLevel()
		if v.facts.onNode {
			level = max(level, joblog.Warning)
		}
		v.refuseVolume(level, "%s", v.facts.unfit)
	case v.claim != "" && owner != "" && owner != p.name:
		v.refuseVolume(joblog.Info, "claim %s is taken with pod %s", v.claim, owner)
	case ended && v.claim == "":
		v.refuseVolume(joblog.Info, "the pod has ended, and what it had on its node may be gone")
	case ended:
		v.refuseVolume(joblog.Error, "the pod has ended, and no running pod of the backup chooses claim %s: delete the pod, or %s", v.claim, v.explainExclusion())
	case !p.isRunning():
		v.refuseVolume(joblog.Error, "the pod does not run: it is %s; back up again once it runs, or %s", p.describeState(), v.explainExclusion())
	case !v.mounted && v.claim == "":
		v.refuseVolume(v.skipLevel(), "no container mounts it, so that it has no data")
	case !v.mounted:
		v.refuseVolume(joblog.Error, "no container mounts it, so that it is not on the node")
	case v.facts != nil && v.facts.failure != "":
		v.refuseVolume(joblog.Error, "%s", v.facts.failure)
	default:
		problem, err := b.checkMover(ctx, p.node)
		if err != nil {
			return err
		}
		if problem != "" {
			v.refuseVolume(joblog.Error, "%s", problem)
		}
	}
	return nil
}

// describeState says in which state a Pod is that does not run.
func (p *podFacts) describeState() string {
	switch {
	case p.leaves:
		return "being deleted"
	case p.node == "":
		return "not scheduled"
	}
	return string(p.phase)
}

// Takes reports whether the data of a claim is taken by file-system backup, so that no snapshot of
// it is needed. With final all Pods have had their turn: what was requested counts alone, and the
// error names the Pod that was to take the data and did not.
func (b *Backupper) Takes(ctx context.Context, namespace, claim string, final bool) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := client.ObjectKey{Namespace: namespace, Name: claim}
	if err := b.findEarlierRequests(ctx); err != nil {
		return false, err
	}
	if _, taken := b.taken[key]; taken {
		return true, nil
	}
	if final && b.surveys[namespace] == nil {
		return false, nil // no earlier call has reported true for a claim of the namespace
	}
	s, err := b.surveyNamespace(ctx, namespace)
	if err != nil {
		return false, err
	}
	owner, chosen := s.owners[claim]
	if !chosen {
		return false, nil
	}
	facts, err := b.readClaim(ctx, key)
	if err != nil || facts.unfit != "" || facts.failure != "" {
		return false, err
	}
	problem, err := b.checkMover(ctx, s.pods[owner].node)
	if err != nil || problem != "" {
		return false, err
	}
	if final {
		return false, fmt.Errorf("pod %s/%s was to be taken with the data of claim %s by file-system backup, and it was not", namespace, owner, claim)
	}
	return true, nil
}
