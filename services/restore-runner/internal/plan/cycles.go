package plan

import (
	"cmp"
	"slices"
)

// maxBreaks bounds the work spent on a graph that was made to be tangled.
const maxBreaks = 64

// breakCycles removes edges until no vertex waits for itself, and returns those it removed. In each
// cycle the edge of the lowest bond goes, and among these the one whose waiting node has the lowest
// number.
func breakCycles(vertices int, edges []graphEdge) (kept, broken []graphEdge) {
	for range maxBreaks {
		stuck := stuckEdges(vertices, edges)
		if len(stuck) == 0 {
			return edges, broken
		}
		cut := weakestEdges(vertices, stuck)
		broken = append(broken, cut...)
		edges = edgesWithout(edges, cut)
	}
	// Too tangled to be worth more: all edges of one bond after the other go, as far as the tangle
	// reaches.
	for b := toNamed; b <= need; b++ {
		stuck := slices.DeleteFunc(stuckEdges(vertices, edges), func(e graphEdge) bool { return e.bond != b })
		broken = append(broken, stuck...)
		edges = edgesWithout(edges, stuck)
	}
	return edges, broken
}

func edgesWithout(edges, cut []graphEdge) []graphEdge {
	gone := make(map[graphEdge]struct{}, len(cut))
	for _, e := range cut {
		gone[e] = struct{}{}
	}
	return slices.DeleteFunc(edges, func(e graphEdge) bool {
		_, ok := gone[e]
		return ok
	})
}

// stuckEdges returns the edges between vertices that can never start.
func stuckEdges(vertices int, edges []graphEdge) []graphEdge {
	g := compileGraph(vertices, edges)
	indegree := g.Indegree()
	var ready []int32
	for v, n := range indegree {
		if n == 0 {
			ready = append(ready, int32(v))
		}
	}
	done := len(ready)
	for len(ready) > 0 {
		v := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		for _, s := range g.Successors(v) {
			if indegree[s]--; indegree[s] == 0 {
				ready = append(ready, s)
				done++
			}
		}
	}
	if done == vertices {
		return nil
	}
	var stuck []graphEdge
	for _, e := range edges {
		if indegree[e.from] > 0 && indegree[e.to] > 0 {
			stuck = append(stuck, e)
		}
	}
	return stuck
}

// weakestEdges follows one predecessor of each stuck vertex, which must lead into a cycle, and picks an
// edge of each cycle met. Every stuck vertex has a stuck predecessor.
func weakestEdges(vertices int, stuck []graphEdge) []graphEdge {
	into := make([]int32, vertices) // 1 + index of the edge followed from a vertex backwards
	for i, e := range stuck {
		if j := into[e.to]; j == 0 || e.bond < stuck[j-1].bond {
			into[e.to] = int32(i) + 1
		}
	}
	var cut []graphEdge
	seen := make([]int32, vertices) // 1 + the walk that passed here
	for i, e := range stuck {
		walk, v := int32(i)+1, e.to
		for seen[v] == 0 {
			seen[v] = walk
			v = stuck[into[v]-1].from
		}
		if seen[v] == walk {
			cut = append(cut, weakestOf(cycleThrough(v, into, stuck)))
		}
	}
	return cut
}

func cycleThrough(v int32, into []int32, stuck []graphEdge) []graphEdge {
	var cycle []graphEdge
	for start := v; ; {
		e := stuck[into[v]-1]
		cycle = append(cycle, e)
		if v = e.from; v == start {
			return cycle
		}
	}
}

func weakestOf(cycle []graphEdge) graphEdge {
	return slices.MinFunc(cycle, func(a, b graphEdge) int { return cmp.Or(cmp.Compare(a.bond, b.bond), cmp.Compare(a.to, b.to)) })
}
