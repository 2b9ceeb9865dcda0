// What llama.cpp's own parser makes of a command line of llama-server, as a JSON object by the names of its flags.
#include "arg.h"
#include "common.h"
#include "speculative.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

int main(int argc, char ** argv) {
    common_params params;
    if (!common_params_parse(argc, argv, params, LLAMA_EXAMPLE_SERVER)) {
        return 1;
    }
    const auto & spec = params.speculative;
    const int length = common_speculative_n_max(&spec);
    std::vector<double> rates;
    try {
        rates = common_speculative_synth_rates_resolve(&spec, length);
    } catch (const std::exception & error) {
        fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
    const auto has = [&](common_speculative_type type) {
        return std::count(spec.types.begin(), spec.types.end(), type) > 0;
    };
    const bool model = has(COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE), head = has(COMMON_SPECULATIVE_TYPE_DRAFT_EAGLE3);
    const bool text = has(COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE);
    // ngram-simple leaves out what is shorter than the tokens that it looked up
    const bool idle = text && spec.ngram_simple.size_m < spec.ngram_simple.size_n;
    printf("{\"-m\": \"%s\", \"-md\": \"%s\", ", params.model.path.c_str(), spec.draft.mparams.path.c_str());
    printf("\"--spec-type\": \"%s%s%s\", ", text ? "ngram-simple" : "", text && (model || head) ? "," : "",
           model ? "draft-simple" : head ? "draft-eagle3" : "");
    printf("\"--spec-draft-n-max\": %d, \"--spec-draft-p-min\": %g, ", spec.draft.n_max, spec.draft.p_min);
    printf("\"--spec-draft-sampling\": \"%s\", ", spec.draft.probabilistic ? "probabilistic" : "greedy");
    printf("\"--spec-ngram-simple-size-n\": %d, ", spec.ngram_simple.size_n);
    printf("\"--spec-ngram-simple-size-m\": %d, \"--spec-synth-rates\": [", spec.ngram_simple.size_m);
    for (size_t i = 0; i < rates.size(); i++) {
        printf("%s%.9g", i ? ", " : "", rates[i]);
    }
    printf("], \"drafts\": \"%s\", \"chain\": true, \"length\": %d}\n", model ? "model" : head ? "head" : "text",
           idle ? 0 : length);
    return 0;
}
