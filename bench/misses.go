package bench

import (
	"context"
	"fmt"
	"strconv"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/score"
	"github.com/annals-project/annals/projections/recall/explained"
)

// Causes are the causes of misses, in the order of the steps of a recall.
func Causes() []string {
	var causes []string
	for _, v := range explained.Verdicts() {
		causes = append(causes, string(v))
	}
	return causes
}

// Misses explains all evidence that the responses lack, through the operator socket of the data folder.
func Misses(ctx context.Context, cfg Config, m Measured) ([]score.Miss, error) {
	misses := []score.Miss{}
	for _, d := range m.asked {
		for _, a := range d.answers {
			missing := a.Missing()
			for len(missing) > 0 {
				some := missing[:min(len(missing), explained.MaxSources)]
				missing = missing[len(some):]
				found, err := explain(ctx, cfg, requestOf(d.Dialogue, a.Question, score.MissTokens), d.key, some)
				if err != nil {
					return nil, fmt.Errorf("%s: %q: %w", d.ID, a.Text, err)
				}
				for _, s := range found.Sources {
					misses = append(misses, score.Miss{
						Dialogue: d.ID, Category: a.Category, Question: a.Text, SourceID: s.SourceID,
						Cause: string(s.Verdict), Why: s.Why, Rank: s.Rank,
					})
				}
			}
		}
	}
	return misses, nil
}

// explain explains a recall in the project of a key.
func explain(
	ctx context.Context, cfg Config, q client.RecallRequest, key string, sourceIDs []string,
) (explained.Explanation, error) {
	args := []string{
		"recall", q.Query, "--explain", "--identity", q.Identity, "--limit", strconv.Itoa(q.Limit),
		"--max-tokens", strconv.Itoa(q.MaxTokens), "--at", q.QueryTimestamp,
	}
	for _, id := range sourceIDs {
		args = append(args, "--missing", id)
	}
	var found explained.Explanation
	err := operateWith(ctx, cfg.Program, cfg.DataDir, key, &found, args...)
	if err != nil {
		err = fmt.Errorf("--misses asks the server %s through the socket in its data folder: %w", cfg.Manager.BaseURL(), err)
	}
	return found, err
}
