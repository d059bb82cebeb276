/* Rules for the scripts of the site. Types are tsc's (tsconfig.json), which knows every name, too. */
import js from "@eslint/js";
import globals from "globals";

export default [
  { files: ["**/*.mjs"], ...js.configs.recommended },
  {
    files: ["templates/**/*.js"],
    languageOptions: { ecmaVersion: 2024, sourceType: "script", globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      ...js.configs.recommended.rules,
      "array-callback-return": "error",
      "consistent-return": "error",
      "eqeqeq": "error",
      "max-len": ["error", { code: 100 }],
      "no-array-constructor": "error",
      "no-constructor-return": "error",
      "no-else-return": "error",
      "no-eval": "error",
      "no-implicit-globals": "error",
      "no-implied-eval": "error",
      "no-lonely-if": "error",
      "no-new-func": "error",
      "no-param-reassign": "error",
      "no-restricted-properties": ["error", ...["innerHTML", "outerHTML", "insertAdjacentHTML"].map(
        (property) => ({ property, message: "Text from outside goes into pages as text." }),
      )],
      "no-self-compare": "error",
      "no-template-curly-in-string": "error",
      "no-unmodified-loop-condition": "error",
      "no-unneeded-ternary": "error",
      "no-unreachable-loop": "error",
      "no-unused-expressions": "error",
      "no-useless-concat": "error",
      "no-useless-return": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-object-has-own": "error",
      "prefer-template": "error",
      "strict": ["error", "global"],
    },
  },
];
