"""The twelve ways to fool the masses, as rules over performance claims.

Every input (records, a submission, another system's log, a written claim) is read into one normalised claim, in which
*unknown* differs from *no*. A rule is a pure function of that claim.
"""
