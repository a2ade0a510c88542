// Empty: with it the compiler takes functions without a body.
