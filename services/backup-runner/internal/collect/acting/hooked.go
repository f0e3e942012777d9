package acting

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// reservedMembers are the members of blocks with hooks, which are processed there and nowhere else.
type reservedMembers struct {
	mu   sync.Mutex
	keys map[itemset.Key]struct{}
}

// Reserved reports whether an object is processed in a block with hooks alone. Safe for concurrent
// use.
func (a *Arranger) Reserved(key itemset.Key) bool {
	a.reserved.mu.Lock()
	defer a.reserved.mu.Unlock()
	_, ok := a.reserved.keys[key]
	return ok
}

func (a *Arranger) reserveMembers(keys []itemset.Key) {
	a.reserved.mu.Lock()
	defer a.reserved.mu.Unlock()
	if a.reserved.keys == nil {
		a.reserved.keys = map[itemset.Key]struct{}{}
	}
	for _, key := range keys {
		a.reserved.keys[key] = struct{}{}
	}
}

// sendHooked sends the blocks with hooks to the queue, before all others: Pods with hooks that share a
// claim are in one block with it, so that what is done with the claim is done between the hooks of
// each. First come the Pods whose hooks an earlier holder began, and whose block is done.
func (a *Arranger) sendHooked(ctx context.Context, queue chan<- Block) error {
	owed := a.Owed
	a.Owed = nil
	for i := range owed {
		if a.Items.Result(history.KeyOf(&owed[i].Object)) == itemset.Waiting {
			continue
		}
		if err := sendBlock(ctx, queue, Block{Hooks: []*podhook.Pod{a.Hooks.Owed(&owed[i])}}); err != nil {
			return err
		}
	}
	if !a.Hooks.Found() && len(owed) == 0 && !a.Resumed {
		return nil
	}
	g, err := a.gatherHookedPods()
	if err != nil {
		return err
	}
	for i := range g.pods {
		if !a.Items.Enter(g.pods[i].Key) || a.Stop.Requested() {
			continue
		}
		b := a.joinBlock(g, i)
		if err := a.completeBlock(ctx, &b); err != nil {
			return err
		}
		g.nameHookedPods(&b)
		keys := make([]itemset.Key, len(b.Members))
		for n := range b.Members {
			keys[n] = b.Members[n].Key
		}
		a.reserveMembers(keys)
		if err := sendBlock(ctx, queue, b); err != nil {
			return err
		}
	}
	return nil
}

// hookedGroup are the Pods with hooks that wait, and what they share.
type hookedGroup struct {
	pods  []*podhook.Pod
	of    map[itemset.Key]int   // Pods by their keys
	users map[itemset.Key][]int // by claim
	// others are the Pods without hooks that mount a claim of these which no list selected. Such a
	// claim has no turn of its own: it is backed up with the first Pod whose action names it.
	others map[itemset.Key][]itemset.Key // by claim
}

// gatherHookedPods finds the Pods with hooks, and reserves them and their claims.
func (a *Arranger) gatherHookedPods() (*hookedGroup, error) {
	g := &hookedGroup{of: map[itemset.Key]int{}, users: map[itemset.Key][]int{}, others: map[itemset.Key][]itemset.Key{}}
	var keys []itemset.Key
	err := a.eachPod(func(key itemset.Key, whole *itemset.SpooledItem) error {
		pod := a.Hooks.Of(whole)
		if pod == nil {
			return nil
		}
		g.of[key] = len(g.pods)
		keys = append(keys, key)
		for _, name := range pod.Claims {
			claim := claimKey(pod.Namespace(), name)
			g.users[claim] = append(g.users[claim], len(g.pods))
			keys = append(keys, claim)
		}
		g.pods = append(g.pods, pod)
		return nil
	})
	a.reserveMembers(keys)
	if err == nil {
		err = a.addSharingPods(g)
	}
	return g, err
}

// addSharingPods finds the Pods without hooks that share claims which no list selected.
func (a *Arranger) addSharingPods(g *hookedGroup) error {
	for claim := range g.users {
		if a.Items.Result(claim) == itemset.Unknown {
			g.others[claim] = nil
		}
	}
	if len(g.others) == 0 {
		return nil
	}
	return a.eachPod(func(key itemset.Key, pod *itemset.SpooledItem) error {
		if _, hooked := g.of[key]; hooked {
			return nil
		}
		for _, name := range podhook.Claims(pod) {
			claim := claimKey(pod.Namespace, name)
			if all, shared := g.others[claim]; shared {
				g.others[claim] = append(all, key)
			}
		}
		return nil
	})
}

// eachPod calls fn with the Pods that wait.
func (a *Arranger) eachPod(fn func(key itemset.Key, whole *itemset.SpooledItem) error) error {
	return a.eachWaiting(func(key itemset.Key, it *itemset.SpooledItem) error {
		if it.GroupResource() != plan.Pods {
			return nil
		}
		at, _ := a.Items.Place(key)
		whole, err := itemset.ReadSpooled(a.Spools.Path(at.File), int64(at.Offset))
		if err != nil {
			return err
		}
		return fn(key, &whole)
	})
}

func claimKey(namespace, name string) itemset.Key {
	return itemset.KeyOf(schema.GroupKind{Kind: "PersistentVolumeClaim"}, namespace, name)
}

// joinBlock returns the block of a Pod that was entered: Pods with hooks first, then those without that ask
// for the same unselected claims, then the claims that wait.
func (a *Arranger) joinBlock(g *hookedGroup, first int) Block {
	var b Block
	var others, claims []Member
	for queue := []int{first}; len(queue) > 0; queue = queue[1:] {
		pod := g.pods[queue[0]]
		b.Members = append(b.Members, Member{Key: pod.Key})
		for _, name := range pod.Claims {
			claim := claimKey(pod.Namespace(), name)
			if !a.Items.Enter(claim) {
				continue
			}
			if a.Items.Result(claim) == itemset.Waiting {
				claims = append(claims, Member{Key: claim})
			}
			for _, other := range g.others[claim] {
				if a.Items.Enter(other) {
					others = append(others, Member{Key: other})
				}
			}
			for _, other := range g.users[claim] {
				if a.Items.Enter(g.pods[other].Key) {
					queue = append(queue, other)
				}
			}
		}
	}
	b.Members = append(append(b.Members, others...), claims...)
	return b
}

// nameHookedPods names the Pods with hooks among the members of a block.
func (g *hookedGroup) nameHookedPods(b *Block) {
	for i := range b.Members {
		if n, ok := g.of[b.Members[i].Key]; ok {
			b.Hooks = append(b.Hooks, g.pods[n])
		}
	}
}
